//! The files that `ralph init` writes, and the initial run files.

/// `ralph_task.md`: an example with explanations.
pub const TASK: &str = include_str!("../../templates/starter/ralph_task.md");

/// `.ralph/guardrails.md`: the signs. Entries are only ever added.
pub const GUARDRAILS: &str = include_str!("../../templates/starter/guardrails.md");

/// `.ralph/progress.md`: what is done and what is next.
pub const PROGRESS: &str = include_str!("../../templates/starter/progress.md");

/// `.ralph/notes.md`: notes from a person to the agent.
pub const NOTES: &str = include_str!("../../templates/starter/notes.md");

/// `.ralph/diagnostics.md`: the doctor's diagnoses.
pub const DIAGNOSTICS: &str = include_str!("../../templates/starter/diagnostics.md");

/// `.ralph/errors.log`: empty, because every line is an entry.
pub const ERRORS_LOG: &str = include_str!("../../templates/starter/errors.log");

/// `.ralph/activity.log`: empty, because every line is an entry.
pub const ACTIVITY_LOG: &str = include_str!("../../templates/starter/activity.log");

/// `ralph.toml`: the settings that users change first.
pub const CONFIG: &str = include_str!("../../templates/starter/ralph.toml");

#[cfg(test)]
mod tests {
    use crate::task::{Task, body, lint};

    use super::*;

    #[test]
    fn the_example_task_has_no_findings() {
        assert_eq!(lint(Some(TASK), 2), []);
        let task = Task::parse(TASK).unwrap();
        let ids: Vec<_> = task.checkboxes.iter().map(|found| found.id.as_str()).collect();
        assert_eq!(ids, ["M1.1", "M1.2"]);
    }

    #[test]
    fn the_settings_that_the_example_only_mentions_are_right_too() {
        let head = TASK.strip_suffix(body(TASK)).unwrap();
        let head = head.lines().map(|line| {
            line.strip_prefix("# ")
                .filter(|rest| is_setting(rest))
                .unwrap_or(line)
        });
        let text = format!("{}\n{}", head.collect::<Vec<_>>().join("\n"), body(TASK));
        assert_eq!(lint(Some(&text), 2), [], "{text}");
        let task = Task::parse(&text).unwrap().frontmatter;
        assert_eq!(task.overrides().len(), 12);
        assert!(task.pr.draft && task.pr.title_template.is_some() && !task.verify_commands.is_empty());
    }

    fn is_setting(line: &str) -> bool {
        let key = line.split(':').next().filter(|key| key.len() < line.len());
        line.starts_with("  ") || key.is_some_and(|key| !key.contains(' '))
    }

    #[test]
    fn a_log_begins_empty_and_a_page_with_a_heading() {
        assert_eq!([ERRORS_LOG, ACTIVITY_LOG], ["", ""]);
        for page in [GUARDRAILS, PROGRESS, NOTES, DIAGNOSTICS] {
            assert!(page.starts_with("# ") && page.ends_with('\n'), "{page}");
        }
    }

    #[cfg(feature = "cli")]
    #[test]
    fn the_example_configuration_is_toml() {
        assert!(CONFIG.parse::<toml::Table>().unwrap().contains_key("budget"));
    }
}
