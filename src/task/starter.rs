//! The files that `ralph init` writes, and the initial run files.

/// `ralph_task.md`: an example with explanations.
pub const TASK: &str = include_str!("../../templates/starter/ralph_task.md");

/// `.ralph/guardrails.md`: the signs. Entries are only ever added.
pub const GUARDRAILS: &str = include_str!("../../templates/starter/guardrails.md");

/// The signs that `ralph init` adds to the guardrails.
pub const SIGNS: &str = include_str!("../../templates/starter/signs.md");

/// `config/models.yaml`, with `{{ cheap }}`, `{{ strong }}` and `{{ code }}` in place of models.
pub const MODELS: &str = include_str!("../../templates/starter/models.yaml");

/// `.env.example`: the keys of models.
pub const ENV_EXAMPLE: &str = include_str!("../../templates/starter/env.example");

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

/// `ralph.toml`: the settings that users change first, with a container as the sandbox.
pub const CONFIG: &str = concat!(
    include_str!("../../templates/starter/sandbox_docker.toml"),
    include_str!("../../templates/starter/ralph.toml")
);

/// `ralph.toml` without a sandbox that isolates, for hosts without a container engine.
pub const LOCAL_CONFIG: &str = concat!(
    include_str!("../../templates/starter/sandbox_local.toml"),
    include_str!("../../templates/starter/ralph.toml")
);

/// In place of the test command of [`TASK`], where none was found in the project.
pub(crate) const NO_TEST_COMMAND: &str = "test_command: \"false\" # no test command was found";

/// The lines of [`TASK`] that a task of one's own replaces, and how. The linter reports them.
pub(super) const PLACEHOLDERS: [(&str, &str); 5] = [
    (
        NO_TEST_COMMAND,
        "name the command that runs your tests, as in `test_command: npm test`; `test_command: \"true\"` if there are none",
    ),
    (
        "# What is to be done, in one line",
        "write what this task does as its heading",
    ),
    (
        "Say why you want it, what exists already, and what must not change. Each iteration begins with a fresh context and reads",
        "replace this paragraph with a description of the task",
    ),
    ("- [ ] M1.1 The greeting names the user", CRITERION),
    ("- [ ] M1.2 The greeting ends with a line break", CRITERION),
];

const CRITERION: &str = "write a success criterion of this task, with a `verify:` command that fails now";

#[cfg(test)]
mod tests {
    use crate::task::{LintRule, Task, body, lint};

    use super::*;

    #[test]
    fn the_example_task_has_no_findings_but_its_placeholders() {
        let findings = lint(Some(TASK), 2);
        let rules: Vec<_> = findings.iter().map(|found| found.rule).collect();
        assert_eq!(rules, [LintRule::Placeholders; 4], "{findings:#?}");
        assert_eq!(lint(Some(&filled_in(TASK)), 2), []);
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
        assert_eq!(lint(Some(&filled_in(&text)), 2), [], "{text}");
        let task = Task::parse(&text).unwrap().frontmatter;
        assert_eq!(task.overrides().len(), 12);
        assert!(task.pr.draft && task.pr.title_template.is_some() && !task.verify_commands.is_empty());
    }

    fn filled_in(text: &str) -> String {
        let replace = |text: String, (line, _): &(&str, &str)| text.replace(line, &format!("{line} now"));
        PLACEHOLDERS.iter().fold(text.to_owned(), replace)
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
        for text in [CONFIG, LOCAL_CONFIG] {
            assert!(text.parse::<toml::Table>().unwrap().contains_key("agent"));
        }
    }
}
