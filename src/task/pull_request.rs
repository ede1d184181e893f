//! The content of a pull request, and its title and body from the task's templates or the default ones.

use serde::Serialize;
use thiserror::Error;

use super::frontmatter::PullRequestOptions;
use super::pull_request_body::{custom_body, default_body};
use super::pull_request_template::{PullRequestTemplate, TemplateUse};
use crate::text::{one_line, visible};

/// The default template of the title.
const TITLE_TEMPLATE: &str = include_str!("../../templates/pr_title.j2");

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
    /// The open pull request from that branch, as the forge links it. Empty if no pull request is open.
    pub stacked_on: String,
    /// The commit with the work.
    pub commit: String,
    /// The success criteria.
    pub checkboxes: Vec<CheckboxFact>,
    /// The commands that the runner itself ran, and their results: one for each command and checkbox that it verifies.
    pub evidence: Vec<EvidenceFact>,
    /// Whether those commands ran in a sandbox of their own, to which the agent had no access.
    pub evidence_apart: bool,
    /// What those commands shared with the agent.
    pub evidence_shares: Vec<String>,
    /// Who signed that, and how to verify it; `None` if it is not signed.
    pub signature: Option<SignatureFact>,
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
    /// The cost divided by the number of ticked checkboxes, as text; empty if there are none.
    pub cost_per_checkbox: String,
    /// The part of each checkbox in the cost. Together they are all of it.
    pub costs: Vec<CheckboxCostFact>,
    /// The estimated cost of the sandbox, as text; empty where the provider charges nothing by the hour.
    pub compute: String,
    /// What was looked for besides the flags, and how much was found.
    pub risks: RiskFacts,
    /// The requests of the sandbox that the policy blocked.
    pub network: NetworkFact,
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

/// A command that the runner itself ran in a clean checkout, and a checkbox that it verifies.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EvidenceFact {
    /// The id of the checkbox; `all` for the test command and for the set-up.
    pub checkbox: String,
    /// The text of the checkbox, or what the command is for.
    pub text: String,
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

/// What one checkbox cost: its part of what was spent since the tick before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckboxCostFact {
    /// The id of the checkbox; empty for what was spent after the last tick.
    pub checkbox: String,
    /// The iteration that ticked it last; 0 without a checkbox.
    pub iteration: u32,
    /// The cost as text: `$0.4200` or `unknown`.
    pub cost: String,
}

/// What was looked for in the work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RiskFacts {
    /// The number of changes of policy files, links, submodules and modes.
    pub flagged_changes: u64,
    /// The number of deleted or weakened checks.
    pub weakened_checks: u64,
    /// Whether the commits were searched for secrets. Commits that contain one are never handed back.
    pub searched_for_secrets: bool,
}

/// The requests of the sandbox that the policy blocked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NetworkFact {
    /// Whether any request is recorded, blocked or not.
    pub is_recorded: bool,
    /// Whether some requests were not recorded.
    pub is_incomplete: bool,
    /// The number of blocked requests.
    pub blocked_requests: u64,
    /// The host names that were blocked, most requests first.
    pub blocked: Vec<BlockedHostFact>,
}

/// A host name that was blocked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockedHostFact {
    /// The host name, with its port unless that is 80 or 443.
    pub name: String,
    /// The number of requests.
    pub requests: u64,
}

/// A signature on the evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SignatureFact {
    /// The id of the key.
    pub key: String,
    /// The command that verifies it.
    pub command: String,
    /// Whether the forge's server has it. Otherwise it is a git note on ralph's host.
    pub is_shared: bool,
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

/// Renders the title and the body. The body has at most 60,000 bytes.
pub fn render_pull_request(
    options: &PullRequestOptions,
    facts: &PullRequestFacts,
) -> Result<PullRequestText, PullRequestTemplateError> {
    let (name, source) = match &options.title_template {
        Some(template) => ("pr.title_template", template.as_str()),
        None => ("pr_title.j2", TITLE_TEMPLATE),
    };
    let title = PullRequestTemplate::new(name, source, TemplateUse::Title).render(facts)?;
    Ok(PullRequestText {
        title: visible(&one_line(&title)).into_owned(),
        body: match &options.body_template {
            Some(template) => custom_body("pr.body_template", template, facts)?,
            None => default_body(facts)?,
        },
    })
}

/// Renders a template with example facts, so that a mistake is found before a run costs anything: once with every list
/// filled and once with every list empty, for both branches of an `if`.
pub(super) fn check_template(name: &str, template: &str) -> Result<(), PullRequestTemplateError> {
    custom_body(name, template, &PullRequestFacts::example())?;
    custom_body(name, template, &PullRequestFacts::default())?;
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
            signature: Some(SignatureFact::default()),
            files: vec![FileFact::default()],
            history: vec![IterationFact::default()],
            interventions: vec![InterventionFact::default()],
            agents: vec![AgentFact::default()],
            image: Some(ImageFact::default()),
            costs: vec![CheckboxCostFact::default()],
            network: NetworkFact {
                blocked: vec![BlockedHostFact::default()],
                ..NetworkFact::default()
            },
            flags: vec![FlagFact::default()],
            agent_settings: vec![String::new()],
            summary: "summary".to_owned(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::text::code_span;

    fn iteration(number: u32, summary: &str, changed_lines: u64, tests: &str) -> IterationFact {
        IterationFact {
            number,
            summary: summary.to_owned(),
            changed_lines,
            tests: tests.to_owned(),
        }
    }

    fn signature() -> SignatureFact {
        SignatureFact {
            key: "sha256:345".to_owned(),
            command: "ralph evidence verify 0123456789".to_owned(),
            is_shared: false,
        }
    }

    pub(in super::super) fn facts() -> PullRequestFacts {
        let checkbox = |id: &str, text: &str, checked| CheckboxFact {
            id: id.to_owned(),
            text: text.to_owned(),
            checked,
        };
        let evidence = |checkbox: &str, text: &str, command: &str, runs| EvidenceFact {
            checkbox: checkbox.to_owned(),
            text: text.to_owned(),
            command: command.to_owned(),
            exit: 0,
            duration_s: 1.26,
            commit: "0123456789abcdef".to_owned(),
            runs,
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
            commit: "0123456789abcdef".to_owned(),
            evidence: vec![
                evidence("M1.1", "It <works> & stays", "test \"`id -u`\" = 0 | cat", 3),
                evidence("all", "(the tests)", "make test", 1),
            ],
            evidence_apart: false,
            evidence_shares: vec!["the network".to_owned(), "`/tmp`".to_owned()],
            signature: Some(signature()),
            files: vec![
                file("src/login.rs", "changed", Some((10, 2))),
                file("logo.png", "added", None),
            ],
            diff_command: "git diff main...ralph/fix-login/login".to_owned(),
            flags: vec![FlagFact {
                path: ".gitignore".to_owned(),
                reason: "a policy file".to_owned(),
            }],
            agent_settings: vec![".claude/settings.json".to_owned(), ".mcp.json".to_owned()],
            summary: "The session is kept.".to_owned(),
            ..run_facts()
        }
    }

    /// What the run was, and what it cost.
    fn run_facts() -> PullRequestFacts {
        PullRequestFacts {
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
            cost_per_checkbox: "unknown".to_owned(),
            costs: vec![CheckboxCostFact {
                checkbox: "M1.1".to_owned(),
                iteration: 2,
                cost: "unknown".to_owned(),
            }],
            compute: String::new(),
            risks: RiskFacts {
                flagged_changes: 1,
                weakened_checks: 0,
                searched_for_secrets: true,
            },
            network: NetworkFact {
                is_recorded: true,
                is_incomplete: false,
                blocked_requests: 14,
                blocked: vec![BlockedHostFact {
                    name: "packages.example".to_owned(),
                    requests: 14,
                }],
            },
            ..PullRequestFacts::default()
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
        insta::assert_snapshot!(text.body);
    }

    #[test]
    fn a_run_with_nothing_to_show_says_so() {
        let text = render_pull_request(&PullRequestOptions::default(), &PullRequestFacts::default()).unwrap();
        assert!(
            text.body
                .starts_with("**Nothing is verified:** ralph ran no command on commit ` `.\n"),
            "{}",
            text.body
        );
        assert!(
            text.body.contains("\nThe task names no checkboxes.\n"),
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
        assert_eq!(code_span(" `a\n"), "`` `a ``");
        assert_eq!(code_span("\n"), "` `");
    }
}
