//! Which image is meant: by flags, by the configuration, by where one is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::assembly::image;
use crate::cli::agent_help;
use crate::config::{Config, ConfigOverride};
use crate::image::{Origin, Platform, Wish};
use crate::nix::Installable;

use super::super::Context;
use super::super::overrides::flags;

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
    #[arg(long, value_name = "NAME", help = agent_help("The agent"))]
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
    pub(super) fn given(&self) -> Vec<ConfigOverride> {
        flags([("--agent", "agent.name", self.agent.clone())])
    }

    /// The wish of somebody who is in this project.
    pub(super) fn wish(&self, context: &Context, config: &Config, project: &Path) -> Wish {
        let configured = image::wish(config, project);
        Wish {
            platform: self.platform,
            origin: self
                .origin(context.surroundings().dir(), config)
                .unwrap_or(configured.origin),
            ..configured
        }
    }

    fn origin(&self, cwd: &Path, config: &Config) -> Option<Origin> {
        let nix = &config.settings.image.nix;
        Some(match (&self.dockerfile, &self.flake) {
            (Some(Dockerfile::At(path)), _) => Origin::Dockerfile(cwd.join(path)),
            (Some(Dockerfile::OfTheAgent), _) => Origin::Template,
            (None, Some(named)) => Origin::Flake {
                flake: named.flake.resolve(cwd),
                attribute: named.attribute.clone().unwrap_or_else(|| nix.attribute.clone()),
            },
            (None, None) => return None,
        })
    }
}
