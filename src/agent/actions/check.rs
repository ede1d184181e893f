//! Checks an answer against the JSON schema that the model got.
//!
//! Supports only the keywords that the schema of an [`ActionsAnswer`](super::ActionsAnswer) uses; a test checks that.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use super::diff::Patch;
use super::json::JsonNode;
use super::path::RelPath;
use super::schema::{NOT_BLANK, PATH_OR_ROOT};
use crate::text::cut_middle;

/// How many problems are described. The others are only counted, because each position takes a pass over the answer.
const DESCRIBED: usize = 10;
/// The longest name of an unknown action in a problem, in characters.
const SHOWN_NAME: usize = 100;

/// What is wrong with an answer.
#[derive(Default)]
pub(super) struct AnswerProblems {
    /// The first problems.
    pub(super) described: Vec<String>,
    /// How many more there are.
    pub(super) more: usize,
}

impl AnswerProblems {
    pub(super) fn add(&mut self, node: &JsonNode<'_>, fault: impl fmt::Display) {
        if self.described.len() < DESCRIBED {
            self.described.push(node.problem(fault));
        } else {
            self.more += 1;
        }
    }
}

/// All violations of the schema.
pub(super) fn problems(schema: &Value, root: &JsonNode<'_>) -> AnswerProblems {
    let mut checker = Checker {
        problems: AnswerProblems::default(),
    };
    checker.value(schema, root);
    checker.problems
}

struct Checker {
    problems: AnswerProblems,
}

impl Checker {
    fn value(&mut self, schema: &Value, node: &JsonNode<'_>) {
        if let Some(actions) = schema["oneOf"].as_array() {
            return self.action(actions, node);
        }
        let expected = match &schema["type"] {
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            one => Vec::from_iter(one.as_str()),
        };
        let kind = node.kind();
        // The schema has no other numbers than integers.
        let name = if kind == "number" { "integer" } else { kind };
        if !expected.contains(&name) {
            return self.wrong_type(node, &expected.join(" or "));
        }
        match kind {
            "object" => self.object(schema, node),
            "array" => self.array(schema, node),
            "string" => self.string(schema, node),
            "number" => self.number(schema, node),
            _ => {}
        }
    }

    /// Checks an object against the schema that its field `type` selects.
    fn action(&mut self, schemas: &[Value], node: &JsonNode<'_>) {
        if node.kind() != "object" {
            return self.wrong_type(node, "object");
        }
        let Some((_, tag)) = node.fields().into_iter().find(|(name, _)| name == "type") else {
            return self.report(node, "the field `type` is missing");
        };
        let Ok(found) = tag.read::<String>() else {
            return self.wrong_type(&tag, "string");
        };
        if let Some(schema) = schemas.iter().find(|schema| action_type(schema) == Some(&found)) {
            return self.object(schema, node);
        }
        let allowed = list(schemas.iter().filter_map(action_type));
        self.report(
            &tag,
            format_args!(
                "`{}` is not an action; expected one of {allowed}",
                cut_middle(&found, SHOWN_NAME)
            ),
        );
    }

    fn object(&mut self, schema: &Value, node: &JsonNode<'_>) {
        let properties = schema["properties"].as_object();
        let mut seen = HashSet::new();
        for (name, value) in node.fields() {
            match properties.and_then(|properties| properties.get(&name)) {
                _ if seen.contains(&name) => self.report(&value, "duplicate field"),
                Some(property) => self.value(property, &value),
                None => {
                    let allowed = list(properties.into_iter().flat_map(|all| all.keys()));
                    self.report(&value, format_args!("unknown field; allowed here: {allowed}"));
                }
            }
            seen.insert(name);
        }
        let required = schema["required"].as_array().into_iter().flatten();
        for field in required.filter_map(Value::as_str) {
            if !seen.contains(field) {
                self.report(node, format_args!("the field `{field}` is missing"));
            }
        }
    }

    fn array(&mut self, schema: &Value, node: &JsonNode<'_>) {
        let items = node.items();
        self.length(&schema["maxItems"], node, "items", items.len());
        for item in items {
            self.value(&schema["items"], &item);
        }
    }

    fn string(&mut self, schema: &Value, node: &JsonNode<'_>) {
        let Ok(text) = node.read::<String>() else {
            return self.report(
                node,
                "is not valid text: it contains an escape sequence that is not a character",
            );
        };
        self.length(&schema["maxLength"], node, "characters", text.chars().count());
        if text.contains('\0') {
            return self.report(node, "has a NUL character (`\\u0000`)");
        }
        if schema["pattern"] == NOT_BLANK && text.trim().is_empty() {
            self.report(node, "must not be empty");
        }
        let fault = match schema["format"].as_str() {
            Some(RelPath::FORMAT) => RelPath::parse(&text).err().map(|error| error.to_string()),
            Some(PATH_OR_ROOT) => RelPath::below_root(&text).err().map(|error| error.to_string()),
            Some(Patch::FORMAT) => Patch::parse(&text).err().map(|error| error.to_string()),
            _ => None,
        };
        if let Some(fault) = fault {
            self.report(node, fault);
        }
    }

    fn number(&mut self, schema: &Value, node: &JsonNode<'_>) {
        let min = schema["minimum"].as_u64().unwrap_or(0);
        let max = schema["maximum"].as_u64().unwrap_or(u64::MAX);
        let number = node.read::<u64>();
        if !number.is_ok_and(|number| (min..=max).contains(&number)) {
            self.report(node, format_args!("expected a whole number from {min} to {max}"));
        }
    }

    fn length(&mut self, most: &Value, node: &JsonNode<'_>, unit: &str, found: usize) {
        if let Some(most) = most.as_u64().filter(|most| found as u64 > *most) {
            self.report(
                node,
                format_args!("has {found} {unit}; at most {most} are allowed"),
            );
        }
    }

    fn wrong_type(&mut self, node: &JsonNode<'_>, expected: &str) {
        self.report(node, format_args!("expected {expected}, found {}", node.kind()));
    }

    fn report(&mut self, node: &JsonNode<'_>, fault: impl fmt::Display) {
        self.problems.add(node, fault);
    }
}

/// The `type` of the action that a schema describes.
fn action_type(schema: &Value) -> Option<&str> {
    schema["properties"]["type"]["const"].as_str()
}

fn list(names: impl Iterator<Item = impl fmt::Display>) -> String {
    names
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::schema::schema;
    use super::*;

    fn found(answer: &str) -> AnswerProblems {
        let (root, _) = JsonNode::parse(answer).unwrap().unwrap();
        problems(schema(), &root)
    }

    #[test]
    fn only_the_first_problems_are_described() {
        let items = vec!["0"; 30_000].join(",");
        let found = found(&format!(r#"{{"summary": "s", "actions": [{items}]}}"#));
        assert_eq!(found.described.len(), DESCRIBED);
        // One for each item, and one for their number.
        assert_eq!(found.described.len() + found.more, 30_001);
    }

    #[test]
    fn what_a_problem_quotes_is_cut() {
        let (long, path) = ("x".repeat(100_000), "x/".repeat(1_500));
        for answer in [
            format!(r#"{{"summary": "s", "actions": [], "{long}": 1}}"#),
            format!(r#"{{"summary": "s", "actions": [{{"type": "{long}"}}]}}"#),
            format!(
                r#"{{"summary": "s", "actions": [{{"type": "run", "command": "a", "cwd": "/{path}"}}]}}"#
            ),
        ] {
            let found = found(&answer);
            assert!(!found.described.is_empty());
            for problem in found.described {
                assert!(problem.chars().count() < 800, "{problem}");
            }
        }
    }
}
