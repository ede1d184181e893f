//! Ticks in the text of a task file. Only the runner decides about them.

use std::collections::BTreeSet;

use super::document;
use super::name::CheckboxId;

/// Ticks exactly these checkboxes and unticks all others. No other byte changes.
#[must_use]
pub fn render_ticks(text: &str, ticked: &BTreeSet<CheckboxId>) -> String {
    let criteria = document::criteria(text);
    let mut rendered = String::with_capacity(text.len());
    let mut copied = 0;
    for (checkbox, mark) in criteria.checkboxes.iter().zip(criteria.marks) {
        let should_be_ticked = ticked.contains(&checkbox.id);
        if checkbox.checked != should_be_ticked {
            rendered.push_str(&text[copied..mark]);
            rendered.push(if should_be_ticked { 'x' } else { ' ' });
            copied = mark + 1;
        }
    }
    rendered.push_str(&text[copied..]);
    rendered
}

/// The checkboxes that are ticked in an agent's copy of the file: what the agent reports as finished. Never fails, even
/// if the agent has damaged the file.
#[must_use]
pub fn ticked_ids(text: &str) -> BTreeSet<CheckboxId> {
    let checkboxes = document::criteria(text).checkboxes.into_iter();
    checkboxes
        .filter(|checkbox| checkbox.checked)
        .map(|checkbox| checkbox.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::task::Task;

    fn ids(names: &[&str]) -> BTreeSet<CheckboxId> {
        names
            .iter()
            .map(|name| CheckboxId::parse(name).unwrap())
            .collect()
    }

    #[test]
    fn only_the_marks_change() {
        let text = "intro [x]\r\n\r\n* [x] M1.1 a\n\t- [ ] M1.2 b [ ]\r\n- [X] M1.3 c\n```\n- [x] code\n```";
        assert_eq!(
            render_ticks(text, &ids(&["M1.2", "M1.3"])),
            "intro [x]\r\n\r\n* [ ] M1.1 a\n\t- [x] M1.2 b [ ]\r\n- [X] M1.3 c\n```\n- [x] code\n```"
        );
    }

    #[test]
    fn the_ticks_of_a_damaged_file_are_found() {
        let damaged = "---\ntask_id: [\n- [x] M1.1 a\n- [ ] M1.2 b\n- [x] M1.3 c\n- [x] M1.3 c\n  - verify:\n```\n- [x] M1.4";
        assert_eq!(ticked_ids(damaged), ids(&["M1.1", "M1.3"]));
        assert_eq!(ticked_ids(""), ids(&[]));
    }

    fn body() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            3 => "[ \t]{0,3}[-*+] \\[[ xX]\\] [a-z]{1,5}",
            1 => "[ \t]{0,6}- verify: `a`",
            1 => "(```|~~~|<!--|-->|# a).{0,3}",
            1 => any::<String>(),
        ];
        prop::collection::vec((line, prop_oneof![Just("\n"), Just("\r\n")]), 0..25).prop_map(|lines| {
            lines
                .into_iter()
                .map(|(line, line_break)| line + line_break)
                .collect()
        })
    }

    proptest! {
        #[test]
        fn exactly_the_named_boxes_are_ticked(text in body(), wanted in prop::collection::btree_set(1usize..12, 0..8)) {
            let all: BTreeSet<_> = document::criteria(&text).checkboxes.into_iter().map(|found| found.id).collect();
            let wanted: BTreeSet<_> = wanted.into_iter().map(CheckboxId::generated).collect();
            let rendered = render_ticks(&text, &wanted);
            let expected: BTreeSet<_> = wanted.intersection(&all).cloned().collect();
            prop_assert_eq!(ticked_ids(&rendered), expected);
            prop_assert_eq!(render_ticks(&rendered, &wanted), rendered.clone());
            prop_assert_eq!(rendered.len(), text.len());
            prop_assert_eq!(rendered.matches("\r\n").count(), text.matches("\r\n").count());
            prop_assert_eq!(render_ticks(&rendered, &BTreeSet::new()), render_ticks(&text, &BTreeSet::new()));
        }

        #[test]
        fn a_task_reads_back_the_ticks_it_was_given(boxes in 1usize..12, wanted in prop::collection::btree_set(1usize..12, 0..8), crlf: bool) {
            let line = |number: usize| format!("- [{}] M1.{number} text\n", [' ', 'x'][number % 2]);
            let lines = (1..=boxes).map(line).collect::<Vec<_>>().concat();
            let text = format!("---\ntask_id: t\ntest_command: t\n---\n{lines}");
            let text = if crlf { text.replace('\n', "\r\n") } else { text };
            let wanted: BTreeSet<_> = wanted.into_iter().map(|number| CheckboxId::parse(&format!("M1.{number}")).unwrap()).collect();
            let task = Task::parse(&render_ticks(&text, &wanted)).unwrap();
            for checkbox in task.checkboxes {
                prop_assert_eq!(checkbox.checked, wanted.contains(&checkbox.id), "{}", checkbox.id);
            }
        }
    }
}
