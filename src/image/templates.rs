//! The Dockerfiles that come with ralph.

use minijinja::{Environment, UndefinedBehavior, Value, context};
use thiserror::Error;

use super::agent::ImageAgent;
use super::reference::ImageReference;

const TEMPLATES: [(&str, &str); 6] = [
    ("claude", include_str!("../../templates/claude/Dockerfile.j2")),
    ("codex", include_str!("../../templates/codex/Dockerfile.j2")),
    ("cursor", include_str!("../../templates/cursor/Dockerfile.j2")),
    ("actions", include_str!("../../templates/actions/Dockerfile.j2")),
    ("tools.j2", include_str!("../../templates/image/tools.j2")),
    (
        "dependencies.j2",
        include_str!("../../templates/image/dependencies.j2"),
    ),
];

/// A Dockerfile that cannot be rendered.
#[derive(Debug, Error)]
#[error("the Dockerfile template cannot be rendered")]
pub struct TemplateError(#[from] minijinja::Error);

/// The Dockerfile of an agent's base: the same bytes for the same agent and image.
pub fn base_dockerfile(agent: ImageAgent, base: &ImageReference) -> Result<String, TemplateError> {
    render(agent.name(), context! { base => base.as_str() })
}

/// Renders one of the templates. A name that a template uses and nobody gives is an error.
pub(super) fn render(name: &str, values: Value) -> Result<String, TemplateError> {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.set_keep_trailing_newline(true);
    templates.set_trim_blocks(true);
    for (name, text) in TEMPLATES {
        templates.add_template(name, text)?;
    }
    Ok(templates.get_template(name)?.render(values)?)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    fn every_image_carries_the_same_tools(
        #[values(
            ImageAgent::Claude,
            ImageAgent::Codex,
            ImageAgent::Cursor,
            ImageAgent::Actions
        )]
        agent: ImageAgent,
    ) {
        let base = ImageReference::default_base(agent);
        let dockerfile = base_dockerfile(agent, &base).unwrap();
        assert!(dockerfile.starts_with(&format!("FROM {base}\n")));
        let packages =
            "build-essential curl fd-find git jq openssh-client python3 python3-pip python3-venv ripgrep";
        for package in packages.split(' ') {
            let line = format!("\n        {package} \\\n");
            assert!(dockerfile.contains(&line), "{package} is missing:\n{dockerfile}");
        }
        for tool in [
            "nodejs.org",
            "command -v npm",
            "npm install -g pnpm",
            "pip install --no-cache-dir uv",
        ] {
            assert!(dockerfile.contains(tool), "{tool} is missing:\n{dockerfile}");
        }
        let last_user = dockerfile.lines().rfind(|line| line.starts_with("USER "));
        assert_eq!(last_user, Some("USER agent"));
        assert!(dockerfile.contains("useradd --create-home"));
        assert_eq!(dockerfile, base_dockerfile(agent, &base).unwrap());
    }

    #[rstest]
    #[case(ImageAgent::Claude, "@anthropic-ai/claude-code@")]
    #[case(ImageAgent::Codex, "@openai/codex@")]
    #[case(ImageAgent::Cursor, "cursor.com/install")]
    fn an_agents_image_carries_its_program(#[case] agent: ImageAgent, #[case] program: &str) {
        let base = ImageReference::parse("debian:12").unwrap();
        assert!(base_dockerfile(agent, &base).unwrap().contains(program));
        assert!(
            !base_dockerfile(ImageAgent::Actions, &base)
                .unwrap()
                .contains(program)
        );
    }

    #[test]
    fn a_name_that_nobody_gives_is_an_error() {
        assert!(render("claude", context! {}).is_err());
    }
}
