//! The Dockerfile templates of ralph.

use minijinja::{Environment, UndefinedBehavior, Value, context};

use crate::agent::AgentImage;

use super::error::ImageError;
use super::reference::ImageReference;

/// The instructions that install the dependencies of a project.
pub(super) const DEPENDENCIES: &str = include_str!("../../templates/image/dependencies.j2");

/// The Dockerfile of an agent's base. The same agent and image always give the same bytes.
pub(super) fn base_dockerfile(agent: AgentImage, base: &ImageReference) -> Result<String, ImageError> {
    render(agent.dockerfile, context! { base => base.as_str() })
}

/// Renders a template, which may include `tools.j2`. A variable without a value is an error.
pub(super) fn render(template: &str, values: Value) -> Result<String, ImageError> {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.set_keep_trailing_newline(true);
    templates.set_trim_blocks(true);
    templates
        .add_template("tools.j2", include_str!("../../templates/image/tools.j2"))
        .and_then(|()| templates.render_str(template, values))
        .map_err(|error| ImageError::failed("cannot render the Dockerfile template").with_cause(error))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::agent::actions::ACTIONS;
    use crate::agent::{CLAUDE, CODEX, CURSOR_AGENT};
    use crate::image::DEFAULT_BASE;

    #[rstest]
    fn every_image_carries_the_same_tools(
        #[values(CLAUDE.image, CODEX.image, CURSOR_AGENT.image, ACTIONS.image)] agent: AgentImage,
    ) {
        let base = ImageReference::parse(DEFAULT_BASE).unwrap();
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
    #[case(CLAUDE.image, "@anthropic-ai/claude-code@")]
    #[case(CODEX.image, "@openai/codex@")]
    #[case(CURSOR_AGENT.image, "cursor.com/install")]
    fn an_agents_image_carries_its_program(#[case] agent: AgentImage, #[case] program: &str) {
        let base = ImageReference::parse("debian:12").unwrap();
        assert!(base_dockerfile(agent, &base).unwrap().contains(program));
        assert!(!base_dockerfile(ACTIONS.image, &base).unwrap().contains(program));
    }

    #[test]
    fn a_variable_without_a_value_is_an_error() {
        assert!(render(CLAUDE.image.dockerfile, context! {}).is_err());
    }
}
