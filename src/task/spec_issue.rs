//! Specifications in issues: frontmatter with the branch, and steps that are headings.
//!
//! Commands and limits are not part of a specification: they come from the configuration.

use std::fmt::Write;

use super::document::{self, TaskParts};
use super::error::{LintRule, TaskError};
use super::fields::FrontmatterFields;
use super::markdown::{self, MarkdownLine};
use super::name::BranchName;
use super::yaml;
use crate::text::one_line;

/// A specification in an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecIssue {
    /// The branch for the work.
    pub branch: BranchName,
    /// The branch to start from.
    pub base: Option<BranchName>,
    /// The issues that must be done before.
    pub depends: Vec<u64>,
    /// The title without the branch.
    pub title: String,
    /// The steps, in order.
    pub steps: Vec<SpecStep>,
    /// The text without the frontmatter.
    text: String,
}

/// A step of a specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecStep {
    /// The heading without its mark.
    pub title: String,
    /// Whether it is to be done.
    pub state: SpecStepState,
}

/// The state of a step, by the mark at the end of its heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecStepState {
    /// No mark: it is to be done.
    Open,
    /// `[done]`
    Done,
    /// `[blocked: reason]`
    Blocked(String),
}

/// The commands and limits for the task of a specification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpecChecks {
    /// The address of the repository.
    pub repo_url: Option<String>,
    /// The command that gets what the others need.
    pub setup_command: Option<String>,
    /// The command that must succeed in the end.
    pub test_command: Option<String>,
    /// The commands that verify each step.
    pub verify_commands: Vec<String>,
    /// Limit on iterations.
    pub max_iterations: u32,
    /// Limit on minutes.
    pub max_wall_time_minutes: u64,
    /// Limit on the cost.
    pub max_cost_usd_estimate: f64,
    /// Limit on tokens.
    pub max_tokens_total: Option<u64>,
}

impl SpecIssue {
    /// Reads the title and the text of an issue. Returns all mistakes.
    pub fn parse(title: &str, body: &str) -> Result<Self, Vec<TaskError>> {
        let (named, title) = split_title(title);
        let parts = TaskParts::split(body);
        let mut errors = Vec::new();
        // A text without frontmatter is fine if the title names the branch.
        errors.extend(parts.error.clone().filter(|_| parts.yaml.is_none()));
        let entries = yaml::parse_mapping(parts.yaml.unwrap_or_default()).unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        let mut fields = FrontmatterFields::new(String::new(), entries, &mut errors);
        let branch = fields.parsed("branch", BranchName::EXPECTED, BranchName::parse);
        let base = fields.parsed("base", BranchName::EXPECTED, BranchName::parse);
        let depends = fields.numbers("depends", "the number of an issue, or a list of them");
        fields.finish();
        let branch = branch.or_else(|| BranchName::parse(named?).ok());
        if branch.is_none() && errors.is_empty() {
            errors.push(TaskError::new(
                1,
                LintRule::RequiredKeys,
                "`branch` is missing",
                "begin the issue with the lines `---`, `branch: fix-login` and `---`, or its title with `[fix-login]`",
            ));
        }
        match branch.filter(|_| errors.is_empty()) {
            Some(branch) => Ok(Self {
                branch,
                base,
                depends,
                title: plain_line(title),
                steps: headings(body).into_iter().map(|heading| heading.step).collect(),
                text: document::body(body).replace("\r\n", "\n"),
            }),
            None => Err(errors),
        }
    }

    /// The task file for the issue with this number. Open steps become checkboxes; the text is quoted below them.
    #[must_use]
    pub fn task(&self, number: u64, checks: &SpecChecks) -> String {
        let mut text = format!("---\ntask_id: issue-{number}\n");
        let mut set = |key: &str, value: serde_json::Value| {
            // JSON is YAML. Writing to a string cannot fail.
            let _ = writeln!(text, "{key}: {value}");
        };
        if let Some(url) = &checks.repo_url {
            set("repo_url", url.as_str().into());
        }
        if let Some(base) = &self.base {
            set("base_branch", base.as_str().into());
        }
        if let Some(command) = &checks.setup_command {
            set("setup_command", command.as_str().into());
        }
        if let Some(command) = &checks.test_command {
            set("test_command", command.as_str().into());
        }
        if !checks.verify_commands.is_empty() {
            set("verify_commands", checks.verify_commands.clone().into());
        }
        set("max_iterations", checks.max_iterations.into());
        set("max_wall_time_minutes", checks.max_wall_time_minutes.into());
        set("max_cost_usd_estimate", checks.max_cost_usd_estimate.into());
        if let Some(tokens) = checks.max_tokens_total {
            set("max_tokens_total", tokens.into());
        }
        let _ = writeln!(text, "---\n# {}\n\nThe steps of issue #{number}:\n", self.title);
        for (step, place) in self.steps.iter().zip(1..) {
            let _ = match &step.state {
                SpecStepState::Open => writeln!(text, "- [ ] S{place} {}", step.title),
                SpecStepState::Done => writeln!(text, "- S{place} {} (done before)", step.title),
                SpecStepState::Blocked(reason) => {
                    writeln!(text, "- S{place} {} (leave it, blocked: {reason})", step.title)
                }
            };
        }
        text.push_str("\nThe text of the issue:\n\n");
        // In a quotation nothing is a checkbox, a heading or a code block of the task.
        for line in self.text.trim().lines() {
            let _ = writeln!(text, "> {}", without_comments(line));
        }
        text
    }
}

/// Marks open steps with these titles as `[done]` in the text of an issue. No other byte changes.
#[must_use]
pub fn mark_steps_done(body: &str, titles: &[&str]) -> String {
    let mut left = titles.to_vec();
    let mut marked = String::with_capacity(body.len());
    let mut copied = 0;
    for heading in headings(body) {
        let place = left.iter().position(|title| *title == heading.step.title);
        if let Some(place) = place.filter(|_| heading.step.state == SpecStepState::Open) {
            left.swap_remove(place);
            let end = heading.line.start + heading.line.text.trim_end().len();
            marked.push_str(&body[copied..end]);
            marked.push_str(" [done]");
            copied = end;
        }
    }
    marked.push_str(&body[copied..]);
    marked
}

/// One line of a task: it neither adds a line nor hides the lines after it.
fn plain_line(text: &str) -> String {
    without_comments(&one_line(text))
}

fn without_comments(line: &str) -> String {
    line.replace("<!--", "&lt;!--")
}

/// A title such as `[branch] Title`.
fn split_title(title: &str) -> (Option<&str>, &str) {
    let split = title
        .trim()
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'));
    match split {
        Some((branch, title)) => (Some(branch.trim()), title.trim()),
        None => (None, title.trim()),
    }
}

struct StepHeading<'a> {
    step: SpecStep,
    line: MarkdownLine<'a>,
}

/// The headings that are steps: those that begin with `Step`, or all below the first level if none does.
fn headings(body: &str) -> Vec<StepHeading<'_>> {
    let start = TaskParts::split(body).body_start;
    let lines = markdown::lines(body).skip_while(|line| line.start < start);
    let (lines, _) = markdown::visible(lines);
    let found = lines.into_iter().filter_map(|line| {
        let (level, text) = markdown::heading(line.text)?;
        let step = step(text);
        (level > 1 && !step.title.is_empty()).then_some(StepHeading { step, line })
    });
    let all: Vec<StepHeading<'_>> = found.collect();
    let is_named = |heading: &StepHeading<'_>| {
        let first = heading.step.title.split_whitespace().next();
        first.is_some_and(|word| word.trim_end_matches(':').eq_ignore_ascii_case("step"))
    };
    if all.iter().any(is_named) {
        all.into_iter().filter(is_named).collect()
    } else {
        all
    }
}

fn step(heading: &str) -> SpecStep {
    let marked = heading.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
    let (title, state) = match marked {
        Some((title, mark)) if mark.trim().eq_ignore_ascii_case("done") => (title, SpecStepState::Done),
        Some((title, mark)) => match mark.split_once(':') {
            Some((word, reason)) if word.trim().eq_ignore_ascii_case("blocked") => {
                (title, SpecStepState::Blocked(plain_line(reason)))
            }
            _ => (heading, SpecStepState::Open),
        },
        None => (heading, SpecStepState::Open),
    };
    SpecStep {
        title: plain_line(title),
        state,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::task::{Task, lint};

    const BODY: &str = "---\r\nbranch: fix/login\r\nbase: \"1.10\"\r\ndepends: [11, 17]\r\n---\r\nWhy it matters.\r\n\r\n\
        ## Keep the session [done]\r\n- [ ] not a box of the task\r\n## Say why it ended\r\n```\r\n## not a step\r\n```\r\n\
        ## Ask the team [blocked: waits for Ada]\r\n<!-- a note\r\n";

    fn checks() -> SpecChecks {
        SpecChecks {
            repo_url: Some("https://github.com/acme/widget.git".to_owned()),
            setup_command: Some("make deps".to_owned()),
            test_command: Some("make \"test\": all".to_owned()),
            verify_commands: vec!["make check # 1".to_owned()],
            max_iterations: 5,
            max_wall_time_minutes: 9,
            max_cost_usd_estimate: 2.5,
            max_tokens_total: None,
        }
    }

    fn step(title: &str, state: SpecStepState) -> SpecStep {
        SpecStep {
            title: title.to_owned(),
            state,
        }
    }

    #[test]
    fn a_specification_is_read() {
        let spec = SpecIssue::parse("Fix the login", BODY).unwrap();
        assert_eq!(spec.branch.as_str(), "fix/login");
        assert_eq!(spec.base.as_ref().unwrap().as_str(), "1.10");
        assert_eq!(spec.depends, [11, 17]);
        let blocked = SpecStepState::Blocked("waits for Ada".to_owned());
        let expected = [
            step("Keep the session", SpecStepState::Done),
            step("Say why it ended", SpecStepState::Open),
            step("Ask the team", blocked),
        ];
        assert_eq!(spec.steps, expected);
    }

    #[test]
    fn open_steps_are_the_checkboxes_of_a_valid_task() {
        let spec = SpecIssue::parse("Fix the login", BODY).unwrap();
        let text = spec.task(12, &checks());
        assert_eq!(lint(Some(&text), 1), [], "{text}");
        let task = Task::parse(&text).unwrap();
        let boxes: Vec<_> = task
            .checkboxes
            .iter()
            .map(|one| (one.id.as_str(), one.text.as_str()))
            .collect();
        assert_eq!(boxes, [("S2", "Say why it ended")]);
        assert_eq!(task.title(), "Fix the login");
        assert_eq!(task.frontmatter.task_id.as_str(), "issue-12");
        assert_eq!(task.frontmatter.base_branch.unwrap().as_str(), "1.10");
        assert_eq!(task.frontmatter.test_command, "make \"test\": all");
        assert_eq!(task.frontmatter.verify_commands, ["make check # 1"]);
    }

    #[rstest]
    #[case::no_commands("## One", SpecChecks { test_command: None, verify_commands: Vec::new(), ..checks() }, &["`test_command` is missing", "nothing verifies S1"])]
    #[case::no_steps("Text alone", checks(), &["the task has 0 checkboxes, and needs at least 1"])]
    #[case::all_done("## One [done]", checks(), &["the task has 0 checkboxes, and needs at least 1"])]
    fn what_cannot_be_verified_is_found(
        #[case] body: &str,
        #[case] checks: SpecChecks,
        #[case] expected: &[&str],
    ) {
        let spec = SpecIssue::parse("[b] Title", body).unwrap();
        let findings = lint(Some(&spec.task(1, &checks)), 1);
        let reasons: Vec<_> = findings.iter().map(|finding| finding.reason.as_str()).collect();
        assert_eq!(reasons, expected);
    }

    #[rstest]
    #[case::title("[fix-login] Fix it", "## a", "fix-login", "Fix it", &[])]
    #[case::frontmatter_wins("[other] Fix it", "---\nbranch: mine\n---\n", "mine", "Fix it", &[])]
    #[case::scalar("Fix it", "---\nbranch: mine\ndepends: 11\n---\n", "mine", "Fix it", &[11])]
    #[case::hash("Fix it", "---\nbranch: mine\ndepends: [\"#11\"]\n---\n", "mine", "Fix it", &[11])]
    fn the_branch_is_in_the_frontmatter_or_the_title(
        #[case] title: &str,
        #[case] body: &str,
        #[case] branch: &str,
        #[case] rest: &str,
        #[case] depends: &[u64],
    ) {
        let spec = SpecIssue::parse(title, body).unwrap();
        assert_eq!((spec.branch.as_str(), spec.title.as_str()), (branch, rest));
        assert_eq!(spec.depends, depends);
    }

    #[rstest]
    #[case::no_branch("Fix it", "## a", "`branch` is missing")]
    #[case::no_name("[a..b] Fix it", "## a", "`branch` is missing")]
    #[case::option(
        "t",
        "---\nbranch: --force\n---\n",
        "`branch` is `--force`; expected a branch name that git accepts"
    )]
    #[case::word(
        "t",
        "---\nbranch: a\ndepends: soon\n---\n",
        "`depends` is `soon`; expected the number of an issue, or a list of them"
    )]
    #[case::misspelt(
        "t",
        "---\nbranch: a\ndepend: 1\n---\n",
        "unknown key `depend`; did you mean `depends`?"
    )]
    #[case::unclosed("[a] t", "---\nbranch: a\n", "the frontmatter is never closed")]
    fn mistakes_are_found(#[case] title: &str, #[case] body: &str, #[case] expected: &str) {
        let errors = SpecIssue::parse(title, body).unwrap_err();
        let reasons: Vec<_> = errors.iter().map(|error| error.reason.as_str()).collect();
        assert_eq!(reasons, [expected]);
        assert!(!errors[0].fix.contains("..."), "{errors:?}");
    }

    #[rstest]
    #[case::one("## a\r\ntext\r\n## b", &["a"], "## a [done]\r\ntext\r\n## b")]
    #[case::last("## a\n## b", &["b", "a"], "## a [done]\n## b [done]")]
    #[case::same_title_once("## a\n## a\n", &["a"], "## a [done]\n## a\n")]
    #[case::done_already("## a [done]\n", &["a"], "## a [done]\n")]
    #[case::gone("## c  \n", &["a"], "## c  \n")]
    #[case::code("```\n## a\n```\n## a  \n", &["a"], "```\n## a\n```\n## a [done]  \n")]
    #[case::named_steps("# T\n## Notes\n## Step 1: a\n", &["Notes", "Step 1: a"], "# T\n## Notes\n## Step 1: a [done]\n")]
    fn ticked_steps_are_written_back(#[case] body: &str, #[case] titles: &[&str], #[case] expected: &str) {
        assert_eq!(mark_steps_done(body, titles), expected);
    }
}
