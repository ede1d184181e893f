//! Which image is meant: by flags, by the configuration, by where one is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::config::{AgentName, Config};
use crate::image::{ImageAgent, Origin, Platform, Rebuild, Wish};
use crate::nix::{Inputs, Installable};
use crate::scm::main_worktree;

use super::super::Context;
use super::super::assemble::Given;

/// The flags that choose an image, on every `image` command.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Wanted {
    /// Build from a Dockerfile even where there is a flake: from this one, with its directory as build context, or
    /// from the agent's own
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "", conflicts_with = "flake")]
    dockerfile: Option<Dockerfile>,
    /// Build from this flake: a directory (`./nix#sandbox`), or an address with a commit
    #[arg(long, value_name = "REF")]
    flake: Option<Installable>,
    /// The agent: claude, codex, cursor, actions or custom
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The platform: linux/amd64 or linux/arm64; the engine's own by default
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<Platform>,
}

/// What `--dockerfile` names.
#[derive(Clone, Debug)]
enum Dockerfile {
    OfTheAgent,
    At(PathBuf),
}

impl From<OsString> for Dockerfile {
    fn from(text: OsString) -> Self {
        if text.is_empty() {
            Self::OfTheAgent
        } else {
            Self::At(text.into())
        }
    }
}

impl Wanted {
    /// What the flags set in the configuration.
    pub(super) fn given(&self) -> Vec<Given> {
        let agent = self.agent.iter().map(|agent| Given {
            flag: "--agent".to_owned(),
            key: "agent.name".to_owned(),
            value: agent.clone(),
        });
        agent.collect()
    }

    /// The wish of somebody who is in this project.
    pub(super) fn wish(&self, context: &Context, config: &Config, project: &Path) -> Wish {
        Wish {
            project: main_worktree(project),
            agent: agent(config.settings.agent.name),
            platform: self.platform,
            origin: self.origin(&context.surroundings.cwd, config),
            base: config.settings.image.base.clone(),
            rebuild: Rebuild::WhenNeeded,
            refresh_after: config.settings.image.refresh_after,
        }
    }

    fn origin(&self, cwd: &Path, config: &Config) -> Origin {
        let nix = &config.settings.image.nix;
        match (&self.dockerfile, &self.flake) {
            (Some(Dockerfile::At(path)), _) => Origin::Dockerfile(cwd.join(path)),
            (Some(Dockerfile::OfTheAgent), _) => Origin::Template,
            (None, Some(named)) => Origin::Flake {
                flake: named.flake.seen_from(cwd),
                attribute: named.attribute.clone().unwrap_or_else(|| nix.attribute.clone()),
            },
            (None, None) => Origin::Project {
                attribute: nix.attribute.clone(),
                inputs: nix.inputs.clone().map_or(Inputs::Tracked, Inputs::Declared),
            },
        }
    }
}

/// A library user's own agent gets the tools without any agent's program.
fn agent(name: AgentName) -> ImageAgent {
    match name {
        AgentName::Claude => ImageAgent::Claude,
        AgentName::Codex => ImageAgent::Codex,
        AgentName::Cursor => ImageAgent::Cursor,
        AgentName::Actions | AgentName::Custom => ImageAgent::Actions,
    }
}
