//! The image that is wanted.

use std::time::Duration;

use thiserror::Error;

use super::agent::Platform;
use super::context::Context;
use super::facts::BaseIdentity;
use super::project::{LayerSource, ProjectLayer};
use super::reference::ImageReference;
use super::tag::ImageTag;
use super::templates::{TemplateError, base_dockerfile};
use crate::agent::AgentImage;
use crate::digest::Digest;

/// A base is pulled again when ralph's last pull is older than this, unless the configuration says otherwise.
pub const DEFAULT_REFRESH: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The image that is wanted: for which agent, built how, with what on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSpec {
    agent: AgentImage,
    platform: Platform,
    mode: Mode,
    project: Option<ProjectLayer>,
    rebuild: Rebuild,
    refresh_after: Duration,
}

/// How the base is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By a builder, from a Dockerfile.
    Dockerfile {
        /// The image that it starts from.
        base: ImageReference,
        /// The whole Dockerfile.
        dockerfile: String,
    },
    /// By a builder, from a Dockerfile of the user's and the files around it.
    File {
        /// The image that it starts from. It is the build argument `BASE_IMAGE`, too.
        base: ImageReference,
        /// The Dockerfile and its context.
        file: OwnDockerfile,
    },
    /// By Nix, from a flake.
    Nix {
        /// The hash of everything that the flake's own files say.
        hash: Digest,
        /// The attribute that is the image.
        attribute: String,
    },
}

impl Mode {
    /// The agent's own Dockerfile on top of an image.
    pub fn from_template(agent: AgentImage, base: ImageReference) -> Result<Self, TemplateError> {
        let dockerfile = base_dockerfile(agent, &base)?;
        Ok(Self::Dockerfile { base, dockerfile })
    }

    /// The word for it in labels.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Dockerfile { .. } => "template",
            Self::File { .. } => "dockerfile",
            Self::Nix { .. } => "nix",
        }
    }

    /// The image that the base is built from. A Nix image starts from nothing.
    #[must_use]
    pub fn base(&self) -> Option<&ImageReference> {
        match self {
            Self::Dockerfile { base, .. } | Self::File { base, .. } => Some(base),
            Self::Nix { .. } => None,
        }
    }
}

/// A Dockerfile in a directory of the user's. The directory is its build context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnDockerfile {
    /// Its name in the directory.
    pub name: String,
    /// What it says.
    pub text: String,
    /// The directory.
    pub context: Context,
}

/// When images are built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rebuild {
    /// When there is none of this content.
    #[default]
    WhenNeeded,
    /// Now, with a fresh base, whatever there is.
    Always,
}

/// A wish that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpecError {
    /// Packages for apt, on an image that has no apt.
    #[error(
        "`.agent-loop/dependencies` names packages for apt, which the Nix image `{attribute}` does not have"
    )]
    DependenciesOnNix {
        /// The image's attribute.
        attribute: String,
    },
}

impl SpecError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::DependenciesOnNix { .. } => Some(
                "name them in `packages` of `lib.mkSandboxImage` in flake.nix, or build with `--dockerfile`",
            ),
        }
    }
}

impl ImageSpec {
    /// Asks for an image; `project` goes on top of the base.
    pub fn new(
        agent: AgentImage,
        platform: Platform,
        mode: Mode,
        project: Option<ProjectLayer>,
    ) -> Result<Self, SpecError> {
        if let Mode::Nix { attribute, .. } = &mode
            && project
                .as_ref()
                .is_some_and(|layer| layer.source == LayerSource::Dependencies)
        {
            let attribute = attribute.clone();
            return Err(SpecError::DependenciesOnNix { attribute });
        }
        Ok(Self {
            agent,
            platform,
            mode,
            project,
            rebuild: Rebuild::default(),
            refresh_after: DEFAULT_REFRESH,
        })
    }

    /// Says when to build.
    #[must_use]
    pub fn rebuild(self, rebuild: Rebuild) -> Self {
        Self { rebuild, ..self }
    }

    /// Says how old ralph's last pull of the base may be.
    #[must_use]
    pub fn refresh_after(self, refresh_after: Duration) -> Self {
        Self {
            refresh_after,
            ..self
        }
    }

    /// The agent that it is for.
    #[must_use]
    pub fn agent(&self) -> AgentImage {
        self.agent
    }

    /// The machine that it is for.
    #[must_use]
    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// How the base is made.
    #[must_use]
    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// What goes on top of the base.
    #[must_use]
    pub fn project(&self) -> Option<&ProjectLayer> {
        self.project.as_ref()
    }

    pub(super) fn when_to_build(&self) -> Rebuild {
        self.rebuild
    }

    pub(super) fn longest_pull_age(&self) -> Duration {
        self.refresh_after
    }

    /// The content hash of the base.
    #[must_use]
    pub fn base_hash(&self, identity: &BaseIdentity) -> Digest {
        match &self.mode {
            Mode::Dockerfile { base, dockerfile } => {
                let identity = identity_of(base, identity);
                Digest::sha256_fields([BASE_FORMAT, self.platform.name(), &identity, dockerfile])
            }
            Mode::File { base, file } => {
                let (identity, context) = (identity_of(base, identity), file.context.digest().hex());
                Digest::sha256_fields([BASE_FORMAT, self.platform.name(), &identity, &file.text, &context])
            }
            Mode::Nix { hash, attribute } => {
                let system = self.platform.nix_system().name();
                Digest::sha256_fields(["ralph nix image 1", system, attribute, &hash.hex()])
            }
        }
    }
}

/// The first field of a hash over a Dockerfile.
const BASE_FORMAT: &str = "ralph base image 1";

fn identity_of(base: &ImageReference, identity: &BaseIdentity) -> String {
    match identity {
        BaseIdentity::Unresolved => format!("unresolved:{base}"),
        known => known.to_string(),
    }
}

impl ProjectLayer {
    /// The content hash of a project's image on top of a base.
    #[must_use]
    pub fn hash(&self, base: &ImageTag) -> Digest {
        let context = self.context_digest().hex();
        Digest::sha256_fields([
            "ralph project image 1",
            &base.to_string(),
            &self.dockerfile,
            &context,
        ])
    }
}
