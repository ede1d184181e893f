//! Renders the title and the body of a pull request from the task's templates or the default ones.

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use thiserror::Error;

use super::frontmatter::PullRequestOptions;
use crate::text::{code_span, counted, one_line, visible};

/// The default template of the title.
const TITLE_TEMPLATE: &str = include_str!("../../templates/pr_title.j2");

/// The default template of the body.
const BODY_TEMPLATE: &str = include_str!("../../templates/pr_body.j2");

/// The content of a pull request. The fields are the variables of its templates.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PullRequestFacts {
    /// The id of the task.
    pub task_id: String,
    /// The title of the task.
    pub title: String,
    /// The id of the run.
    pub run: String,
    /// The branch with the work.
    pub branch: String,
    /// The branch that it is to be merged into.
    pub base: String,
    /// The success criteria.
    pub checkboxes: Vec<CheckboxFact>,
    /// The commands that the runner itself ran, and their results.
    pub evidence: Vec<EvidenceFact>,
    /// Whether those commands ran in a sandbox of their own, to which the agent had no access.
    pub evidence_apart: bool,
    /// What those commands shared with the agent.
    pub evidence_shares: Vec<String>,
    /// The changed files.
    pub files: Vec<FileFact>,
    /// A command that shows the changes.
    pub diff_command: String,
    /// The number of iterations.
    pub iterations: u32,
    /// The iterations, oldest first.
    pub history: Vec<IterationFact>,
    /// What people asked of the run.
    pub interventions: Vec<InterventionFact>,
    /// The agents and their models.
    pub agents: Vec<AgentFact>,
    /// The image of the sandbox; `None` if it has none.
    pub image: Option<ImageFact>,
    /// The number of tokens.
    pub tokens: u64,
    /// The cost as text: `$0.4200` or `unknown`.
    pub cost: String,
    /// Changes that a reviewer has to check.
    pub flags: Vec<FlagFact>,
    /// Agent settings in the repository.
    pub agent_settings: Vec<String>,
    /// The agent's summary.
    pub summary: String,
}

/// A success criterion and whether it was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckboxFact {
    /// Its id.
    pub id: String,
    /// The text of the criterion.
    pub text: String,
    /// Whether the runner verified it.
    pub checked: bool,
}

/// A command that the runner itself ran in a clean checkout.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EvidenceFact {
    /// The shell command.
    pub command: String,
    /// The exit code, as a shell reports it.
    pub exit: i32,
    /// The duration in seconds.
    pub duration_s: f64,
    /// The commit that was checked out.
    pub commit: String,
    /// How often it ran, in a row.
    pub runs: u32,
}

/// A changed file that a reviewer has to check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlagFact {
    /// The file.
    pub path: String,
    /// The reason.
    pub reason: String,
}

/// A changed file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileFact {
    /// The file.
    pub path: String,
    /// `added`, `deleted` or `changed`.
    pub change: String,
    /// The number of added lines; `None` for a binary file.
    pub added: Option<u64>,
    /// The number of removed lines; `None` for a binary file.
    pub removed: Option<u64>,
}

/// One iteration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IterationFact {
    /// Its number, from 1.
    pub number: u32,
    /// The agent's summary, as one line.
    pub summary: String,
    /// Lines added and removed.
    pub changed_lines: u64,
    /// `tests pass`, `tests fail` or `tests not run`.
    pub tests: String,
}

/// What a person asked of the run, and the run did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InterventionFact {
    /// The iteration after which it was done; 0 before the first.
    pub after: u32,
    /// Who asked.
    pub by: String,
    /// A short description, as one line.
    pub what: String,
}

/// An agent and its model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AgentFact {
    /// The agent.
    pub name: String,
    /// The model.
    pub model: String,
}

/// The image of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImageFact {
    /// Its name.
    pub name: String,
    /// Its digest; empty if the provider does not know it.
    pub digest: String,
}

/// The rendered text of a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequestText {
    /// The title: one line.
    pub title: String,
    /// The body: Markdown.
    pub body: String,
}

/// A template that cannot be rendered.
#[derive(Debug, Error)]
#[error("cannot render the template `{template}`{}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
pub struct PullRequestTemplateError {
    /// The key in the frontmatter, or the name of the default template.
    pub template: String,
    /// The line of the template.
    pub line: Option<usize>,
    /// The error of the template engine.
    pub source: minijinja::Error,
}

/// Renders the title and the body.
pub fn render_pull_request(
    options: &PullRequestOptions,
    facts: &PullRequestFacts,
) -> Result<PullRequestText, PullRequestTemplateError> {
    let title = match &options.title_template {
        Some(template) => render("pr.title_template", template, facts)?,
        None => render("pr_title.j2", TITLE_TEMPLATE, facts)?,
    };
    let body = match &options.body_template {
        Some(template) => render("pr.body_template", template, facts)?,
        None => render("pr_body.j2", BODY_TEMPLATE, facts)?,
    };
    Ok(PullRequestText {
        title: visible(&one_line(&title)).into_owned(),
        body: visible(&body).into_owned(),
    })
}

/// Renders a template with example facts, so that a mistake is found before a run costs anything: once with every list
/// filled and once with every list empty, for both branches of an `if`.
pub(super) fn check_template(name: &str, template: &str) -> Result<(), PullRequestTemplateError> {
    render(name, template, &PullRequestFacts::example())?;
    render(name, template, &PullRequestFacts::default())?;
    Ok(())
}

impl PullRequestFacts {
    fn example() -> Self {
        Self {
            checkboxes: vec![CheckboxFact {
                checked: true,
                ..CheckboxFact::default()
            }],
            evidence: vec![EvidenceFact::default()],
            evidence_apart: false,
            evidence_shares: vec!["everything".to_owned()],
            files: vec![FileFact::default()],
            history: vec![IterationFact::default()],
            interventions: vec![InterventionFact::default()],
            agents: vec![AgentFact::default()],
            image: Some(ImageFact::default()),
            flags: vec![FlagFact::default()],
            agent_settings: vec![String::new()],
            summary: "summary".to_owned(),
            ..Self::default()
        }
    }
}

fn render(name: &str, template: &str, facts: &PullRequestFacts) -> Result<String, PullRequestTemplateError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_filter("code", |text: String| code_span(&text));
    environment.add_filter("counted", |count: u64, noun: String| counted(count, &noun));
    environment
        .render_named_str(name, template, facts)
        .map_err(|source| PullRequestTemplateError {
            template: name.to_owned(),
            line: source.line(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iteration(number: u32, summary: &str, changed_lines: u64, tests: &str) -> IterationFact {
        IterationFact {
            number,
            summary: summary.to_owned(),
            changed_lines,
            tests: tests.to_owned(),
        }
    }

    fn facts() -> PullRequestFacts {
        let checkbox = |id: &str, text: &str, checked| CheckboxFact {
            id: id.to_owned(),
            text: text.to_owned(),
            checked,
        };
        let file = |path: &str, change: &str, lines: Option<(u64, u64)>| FileFact {
            path: path.to_owned(),
            change: change.to_owned(),
            added: lines.map(|(added, _)| added),
            removed: lines.map(|(_, removed)| removed),
        };
        PullRequestFacts {
            task_id: "fix-login".to_owned(),
            title: "Fix the login".to_owned(),
            run: "r23456789".to_owned(),
            branch: "ralph/fix-login/login".to_owned(),
            base: "main".to_owned(),
            checkboxes: vec![
                checkbox("M1.1", "It <works> & stays", true),
                checkbox("M1.2", "It says why", false),
            ],
            evidence: vec![EvidenceFact {
                command: "test \"`id -u`\" = 0".to_owned(),
                exit: 0,
                duration_s: 1.26,
                commit: "0123456789".to_owned(),
                runs: 3,
            }],
            evidence_apart: false,
            evidence_shares: vec!["the network".to_owned(), "`/tmp`".to_owned()],
            files: vec![
                file("src/login.rs", "changed", Some((10, 2))),
                file("logo.png", "added", None),
            ],
            diff_command: "git diff main...ralph/fix-login/login".to_owned(),
            iterations: 2,
            history: vec![
                iteration(1, "Wrote a test.", 1, "tests fail"),
                iteration(2, "The session is kept.", 11, "tests pass"),
            ],
            interventions: Vec::new(),
            agents: vec![AgentFact {
                name: "claude".to_owned(),
                model: "sonnet".to_owned(),
            }],
            image: Some(ImageFact {
                name: "ralph/claude:1".to_owned(),
                digest: "sha256:012".to_owned(),
            }),
            tokens: 4200,
            cost: "unknown".to_owned(),
            flags: vec![FlagFact {
                path: ".gitignore".to_owned(),
                reason: "a policy file".to_owned(),
            }],
            agent_settings: vec![".claude/settings.json".to_owned(), ".mcp.json".to_owned()],
            summary: "The session is kept.".to_owned(),
        }
    }

    fn body_template(template: &str) -> PullRequestOptions {
        PullRequestOptions {
            body_template: Some(template.to_owned()),
            ..PullRequestOptions::default()
        }
    }

    #[test]
    fn the_default_templates_show_everything() {
        let text = render_pull_request(&PullRequestOptions::default(), &facts()).unwrap();
        assert_eq!(text.title, "fix-login: Fix the login");
        insta::assert_snapshot!(text.body, @r#"
        ## Look at these first

        - `.gitignore`: a policy file

        ## Summary

        The session is kept.

        ## Criteria

        - [x] M1.1 It <works> & stays
        - [ ] M1.2 It says why

        ## Evidence

        ralph itself ran these in a clean checkout, in the sandbox of the agent, after ralph ended its processes,
        with an empty home and temporary directory. They shared with the agent: the network; `/tmp`:

        - ``test "`id -u`" = 0``: exit 0 after 1.3 s on `0123456789`, 3 times in a row

        ## Changes

        2 files, shown by `git diff main...ralph/fix-login/login`:

        - `src/login.rs`: changed, +10 -2
        - `logo.png`: added, binary

        ## Run

        Task `fix-login`, run `r23456789`, from `ralph/fix-login/login` into `main`:
        2 iterations, 4200 tokens, cost unknown.

        - Agent: `claude`, model `sonnet`
        - Image: `ralph/claude:1`, `sha256:012`

        1. Wrote a test. (1 line changed, tests fail)
        2. The session is kept. (11 lines changed, tests pass)

        The repository brought settings for agents, which were in force: `.claude/settings.json`, `.mcp.json`.
        "#);
    }

    #[test]
    fn a_run_with_nothing_to_show_says_so() {
        let text = render_pull_request(&PullRequestOptions::default(), &PullRequestFacts::default()).unwrap();
        assert!(
            text.body.starts_with("## Criteria\n\nThe task names none.\n"),
            "{}",
            text.body
        );
        assert!(
            text.body.contains("None: nothing was verified.\n"),
            "{}",
            text.body
        );
    }

    #[test]
    fn the_task_brings_its_own_templates() {
        let options = PullRequestOptions {
            title_template: Some("{{ title }}\n({{ run }})\n".to_owned()),
            ..body_template("{% for flag in flags %}{{ flag.path }}{% endfor %}")
        };
        let text = render_pull_request(&options, &facts()).unwrap();
        assert_eq!(text.title, "Fix the login (r23456789)");
        assert_eq!(text.body, ".gitignore");
    }

    #[test]
    fn an_unknown_variable_is_reported_with_template_and_line() {
        let error = render_pull_request(&body_template("a\n{{ tokenz }}"), &facts()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot render the template `pr.body_template`, line 2"
        );
    }

    #[test]
    fn both_sides_of_an_if_are_checked() {
        let is_fine = |template: &str| check_template("t", template).is_ok();
        assert!(is_fine("{% if flags %}{{ run }}{% else %}{{ base }}{% endif %}"));
        assert!(!is_fine(
            "{% if flags %}{{ runn }}{% else %}{{ base }}{% endif %}"
        ));
        assert!(!is_fine("{% if flags %}{{ run }}{% else %}{{ bass }}{% endif %}"));
        assert!(!is_fine("{% if flags %}"));
    }

    #[test]
    fn a_command_with_backticks_stays_one_code_span() {
        assert_eq!(code_span("ls"), "`ls`");
        assert_eq!(code_span("a `b`"), "`` a `b` ``");
        assert_eq!(code_span("a ``b`` c"), "```a ``b`` c```");
        assert_eq!(code_span("a\n\nb"), "`a b`");
    }
}
