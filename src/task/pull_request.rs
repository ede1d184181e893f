//! The title and the body of a pull request, rendered from the task's own templates or from ralph's.

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use thiserror::Error;

use super::frontmatter::PullRequestOptions;

/// The template of the title when the task has none.
pub const TITLE_TEMPLATE: &str = include_str!("../../templates/pr_title.j2");

/// The template of the body when the task has none.
pub const BODY_TEMPLATE: &str = include_str!("../../templates/pr_body.j2");

/// What a pull request tells. The fields are the variables of its templates.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PullRequestFacts {
    /// The name of the task.
    pub task_id: String,
    /// The title of the task.
    pub title: String,
    /// The id of the run.
    pub run: String,
    /// The branch with the work.
    pub branch: String,
    /// The branch it is meant for.
    pub base: String,
    /// The criteria of success.
    pub checkboxes: Vec<CheckboxFact>,
    /// What the runner itself ran, and how it ended.
    pub evidence: Vec<Evidence>,
    /// How many iterations it took.
    pub iterations: u32,
    /// How many tokens it took.
    pub tokens: u64,
    /// What it cost, as text: `$0.4200`, or `unknown`.
    pub cost: String,
    /// Changes that a reviewer must look at.
    pub flags: Vec<Flag>,
    /// Settings for agents that the repository brought along.
    pub agent_settings: Vec<String>,
    /// What the agent says it did.
    pub summary: String,
}

/// A criterion of success and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckboxFact {
    /// Its id.
    pub id: String,
    /// What is to hold.
    pub text: String,
    /// Whether the runner verified that it does.
    pub checked: bool,
}

/// A command that the runner itself ran in a clean checkout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// The shell line.
    pub command: String,
    /// The code it left with, as a shell reports it.
    pub exit: i32,
    /// How long it ran, in seconds.
    pub duration_s: f64,
    /// The commit that was checked out.
    pub commit: String,
}

/// A changed file that a reviewer must look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flag {
    /// The file.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// A pull request as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequestText {
    /// One line.
    pub title: String,
    /// Markdown.
    pub body: String,
}

/// A template that cannot be rendered.
#[derive(Debug, Error)]
#[error("cannot render the template `{template}`{}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
pub struct TemplateError {
    /// Which one: the key in the frontmatter, or ralph's own file.
    pub template: String,
    /// The line of the template.
    pub line: Option<usize>,
    /// What is wrong there.
    pub source: minijinja::Error,
}

/// Renders the title and the body from the task's templates, or from ralph's own.
pub fn render_pull_request(
    options: &PullRequestOptions,
    facts: &PullRequestFacts,
) -> Result<PullRequestText, TemplateError> {
    let (name, template) = match &options.title_template {
        Some(template) => ("pr.title_template", template.as_str()),
        None => ("pr_title.j2", TITLE_TEMPLATE),
    };
    let title = render(name, template, facts)?;
    let (name, template) = match &options.body_template {
        Some(template) => ("pr.body_template", template.as_str()),
        None => ("pr_body.j2", BODY_TEMPLATE),
    };
    let body = render(name, template, facts)?;
    Ok(PullRequestText {
        title: one_line(&title),
        body,
    })
}

/// Renders a template with made-up facts, so that a mistake shows before a run has cost anything: once with
/// every list filled and once with every list empty, for the two sides of an `if`.
pub(super) fn check_template(name: &str, template: &str) -> Result<(), TemplateError> {
    render(name, template, &PullRequestFacts::example())?;
    render(name, template, &PullRequestFacts::default())?;
    Ok(())
}

impl PullRequestFacts {
    fn example() -> Self {
        Self {
            checkboxes: vec![CheckboxFact {
                id: "M1.1".to_owned(),
                text: String::new(),
                checked: true,
            }],
            evidence: vec![Evidence {
                command: String::new(),
                exit: 0,
                duration_s: 0.0,
                commit: String::new(),
            }],
            flags: vec![Flag {
                path: String::new(),
                reason: String::new(),
            }],
            agent_settings: vec![String::new()],
            summary: "summary".to_owned(),
            ..Self::default()
        }
    }
}

fn render(name: &str, template: &str, facts: &PullRequestFacts) -> Result<String, TemplateError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_filter("code", |text: String| code_span(&text));
    environment
        .render_named_str(name, template, facts)
        .map_err(|source| TemplateError {
            template: name.to_owned(),
            line: source.line(),
            source,
        })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text as a Markdown code span, whatever backticks it holds.
fn code_span(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let padding = if text.starts_with('`') || text.ends_with('`') {
        " "
    } else {
        ""
    };
    format!("{fence}{padding}{}{padding}{fence}", one_line(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> PullRequestFacts {
        let checkbox = |id: &str, text: &str, checked| CheckboxFact {
            id: id.to_owned(),
            text: text.to_owned(),
            checked,
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
            evidence: vec![Evidence {
                command: "test \"`id -u`\" = 0".to_owned(),
                exit: 0,
                duration_s: 1.26,
                commit: "0123456789".to_owned(),
            }],
            iterations: 3,
            tokens: 4200,
            cost: "unknown".to_owned(),
            flags: vec![Flag {
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
    fn the_default_templates_tell_everything() {
        let text = render_pull_request(&PullRequestOptions::default(), &facts()).unwrap();
        assert_eq!(text.title, "fix-login: Fix the login");
        insta::assert_snapshot!(text.body, @r#"
        The session is kept.

        ## Look at these first

        - `.gitignore`: a policy file

        ## Criteria

        - [x] M1.1 It <works> & stays
        - [ ] M1.2 It says why

        ## Evidence

        ralph itself ran these in a clean checkout, after every process of the agent was gone:

        - ``test "`id -u`" = 0``: exit 0 after 1.3 s on `0123456789`

        ## Run

        Task `fix-login`, run `r23456789`, from `ralph/fix-login/login` into `main`:
        3 iterations, 4200 tokens, cost unknown.

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
    fn an_unknown_variable_is_told_with_template_and_line() {
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
