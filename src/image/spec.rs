//! The description of an image.

use std::time::Duration;

use super::context::BuildContext;
use super::engine_state::BaseIdentity;
use super::error::ImageError;
use super::platform::Platform;
use super::project::{ProjectLayer, ProjectLayerSource};
use super::reference::ImageReference;
use super::tag::ImageTag;
use super::templates::base_dockerfile;
use crate::agent::AgentImage;
use crate::digest::Digest;

/// By default, the base is pulled again if ralph's last pull is older.
pub const DEFAULT_REFRESH: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The description of an image: its agent, how its base is built, and what the project adds.
#[derive(Clone, Debug)]
pub struct ImageSpec {
    /// The agent that it is for.
    pub agent: AgentImage,
    /// The platform that it is for.
    pub platform: Platform,
    /// How the base is built.
    pub mode: BuildMode,
    /// What the project adds.
    pub project: Option<ProjectLayer>,
    /// When to build.
    pub rebuild: Rebuild,
    /// How old ralph's last pull of the base may be.
    pub refresh_after: Duration,
    /// Whether a base for another platform is an error. Otherwise it is used, because engines may emulate the processor.
    pub requires_platform: bool,
}

/// How the base is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildMode {
    /// From the Dockerfile template of the agent.
    Template {
        /// The image that it starts from.
        base: ImageReference,
        /// The rendered template.
        dockerfile: String,
    },
    /// From a Dockerfile of the user and its build context.
    Dockerfile {
        /// The image that it starts from, which is also the build argument `BASE_IMAGE`.
        base: ImageReference,
        /// The Dockerfile and its context.
        file: DockerfileContext,
    },
    /// From a flake, by Nix.
    Nix {
        /// The hash of the flake's inputs.
        hash: Digest,
        /// The package that is the image.
        attribute: String,
    },
}

impl BuildMode {
    /// The agent's template on top of an image.
    pub fn from_template(agent: AgentImage, base: ImageReference) -> Result<Self, ImageError> {
        let dockerfile = base_dockerfile(agent, &base)?;
        Ok(Self::Template { base, dockerfile })
    }

    /// The name in labels.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Template { .. } => "template",
            Self::Dockerfile { .. } => "dockerfile",
            Self::Nix { .. } => "nix",
        }
    }

    /// The image that the base is built from. A Nix image has none.
    #[must_use]
    pub fn base(&self) -> Option<&ImageReference> {
        match self {
            Self::Template { base, .. } | Self::Dockerfile { base, .. } => Some(base),
            Self::Nix { .. } => None,
        }
    }
}

/// A Dockerfile and its build context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerfileContext {
    /// The name of the Dockerfile in the context.
    pub name: String,
    /// The content of the Dockerfile.
    pub text: String,
    /// The other files.
    pub context: BuildContext,
}

impl DockerfileContext {
    /// A Dockerfile that needs no files.
    #[must_use]
    pub fn alone(text: String) -> Self {
        let (name, context) = ("Dockerfile".to_owned(), BuildContext::default());
        Self { name, text, context }
    }
}

/// When an image is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rebuild {
    /// If the engine has none with this content.
    #[default]
    WhenNeeded,
    /// Always, after pulling the base and without the build cache.
    Always,
}

impl ImageSpec {
    /// Describes an image. `project` is built on top of the base.
    pub fn new(
        agent: AgentImage,
        platform: Platform,
        mode: BuildMode,
        project: Option<ProjectLayer>,
    ) -> Result<Self, ImageError> {
        if let BuildMode::Nix { attribute, .. } = &mode
            && project
                .as_ref()
                .is_some_and(|layer| layer.source == ProjectLayerSource::Dependencies)
        {
            return Err(ImageError::invalid(format!(
                "`.agent-loop/dependencies` lists apt packages, but the Nix image `{attribute}` has no apt"
            ))
            .with_hint(
                "list them in `packages` of `lib.mkSandboxImage` in flake.nix, or build from a Dockerfile",
            ));
        }
        Ok(Self {
            agent,
            platform,
            mode,
            project,
            rebuild: Rebuild::default(),
            refresh_after: DEFAULT_REFRESH,
            requires_platform: false,
        })
    }

    /// The name of the image without its tag: agent and project, as far as there is a project layer.
    #[must_use]
    pub fn repository(&self) -> String {
        // The hash is only in the tag.
        let any = Digest::sha256(b"");
        let tag = match &self.project {
            Some(layer) => ImageTag::project(self.agent, &layer.name, &any),
            None => ImageTag::base(self.agent, &any),
        };
        tag.repository().to_owned()
    }

    /// The content hash of the base.
    #[must_use]
    pub fn base_hash(&self, identity: &BaseIdentity) -> Digest {
        match &self.mode {
            BuildMode::Template { base, dockerfile } => {
                let identity = identity_of(base, identity);
                Digest::sha256_fields([BASE_FORMAT, self.platform.name(), &identity, dockerfile])
            }
            BuildMode::Dockerfile { base, file } => {
                let (identity, context) = (identity_of(base, identity), file.context.digest().hex());
                Digest::sha256_fields([BASE_FORMAT, self.platform.name(), &identity, &file.text, &context])
            }
            BuildMode::Nix { hash, attribute } => {
                let system = self.platform.nix_system();
                Digest::sha256_fields(["ralph nix image 1", system, attribute, &hash.hex()])
            }
        }
    }
}

/// The first field of the hash of a base.
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
        let context = self.file.context.digest().hex();
        Digest::sha256_fields([
            "ralph project image 1",
            &base.to_string(),
            &self.file.text,
            &context,
        ])
    }
}
