//! The part of the prompt that describes the expected answer.

use super::schema::schema;

/// Complete answers, as examples for the model.
const EXAMPLES: [&str; 3] = [
    include_str!("../../../templates/prompt/examples/1-look.json"),
    include_str!("../../../templates/prompt/examples/2-change.json"),
    include_str!("../../../templates/prompt/examples/3-end.json"),
];

/// The schema with examples. The text is the same in every process, so that prompts can be cached.
pub(super) fn answer_format() -> String {
    let examples: Vec<String> = EXAMPLES
        .iter()
        .map(|example| format!("```json\n{}\n```", example.trim_end()))
        .collect();
    format!(
        include_str!("../../../templates/prompt/answer_format.md"),
        schema = format_args!("{:#}", schema()),
        examples = examples.join("\n\n"),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use crate::agent::actions::{ActionsAnswer, Patch, parse_answer};

    use super::*;

    #[test]
    fn the_examples_are_answers() {
        for example in EXAMPLES {
            parse_answer(example).unwrap();
        }
    }

    #[test]
    fn the_diff_in_the_example_applies() {
        let answer: ActionsAnswer = parse_answer(EXAMPLES[1]).unwrap();
        let crate::agent::actions::AgentAction::Patch { patch, .. } = &answer.actions[0] else {
            panic!("not a patch");
        };
        let before =
            "pub fn fields(line: &str) -> Vec<&str> {\n    line.split(',').collect()\n}\n\nmod tests;\n";
        assert!(Patch::apply(patch, Some(before.as_bytes())).is_ok());
    }

    #[test]
    fn the_format_shows_every_action_and_example_and_is_always_the_same() {
        let text = answer_format();
        for name in [
            "run",
            "patch",
            "write",
            "commit",
            "rotate",
            "pause",
            "stop_success",
            "stop_failure",
        ] {
            assert!(text.contains(&format!("\"const\": \"{name}\"")), "{name}");
        }
        assert!(EXAMPLES.iter().all(|example| text.contains(example.trim_end())));
        assert_eq!(text, answer_format());
    }

    #[test]
    fn the_checker_knows_every_keyword_of_the_schema() {
        const CHECKED: [&str; 13] = [
            "additionalProperties",
            "const",
            "format",
            "items",
            "maxItems",
            "maxLength",
            "maximum",
            "minimum",
            "oneOf",
            "pattern",
            "properties",
            "required",
            "type",
        ];
        const NOT_CHECKED: [&str; 3] = ["default", "description", "title"];
        let mut keywords = BTreeSet::new();
        collect_keywords(schema(), &mut keywords);
        let known: BTreeSet<String> = CHECKED
            .iter()
            .chain(&NOT_CHECKED)
            .map(ToString::to_string)
            .collect();
        assert_eq!(keywords, known);
    }

    fn collect_keywords(schema: &Value, into: &mut BTreeSet<String>) {
        for (keyword, value) in schema.as_object().unwrap() {
            into.insert(keyword.clone());
            match keyword.as_str() {
                "properties" => value
                    .as_object()
                    .unwrap()
                    .values()
                    .for_each(|schema| collect_keywords(schema, into)),
                "oneOf" => value
                    .as_array()
                    .unwrap()
                    .iter()
                    .for_each(|schema| collect_keywords(schema, into)),
                "items" => collect_keywords(value, into),
                _ => {}
            }
        }
    }
}
