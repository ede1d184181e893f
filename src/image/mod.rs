//! The images that sandboxes start from.
//!
//! An image is a *base* with an agent and its tools and, on top, a *project layer* from `.agent-loop/`
//! ([`ProjectLayer::read`]). An [`ImageRequest`] says what is wanted. [`ImageBuilder::read`] reads and hashes its inputs,
//! [`ImageBuilder::plan`] decides what must be done, and [`ImageBuilder::ensure`] does it. The tag contains a hash of the
//! inputs, so an image that exists is never built again; `docs/reference/image-hash.md` specifies the hash.
//!
//! ```no_run
//! use ralph::agent::CLAUDE;
//! use ralph::assembly::Surroundings;
//! use ralph::exec::Discard;
//! use ralph::image::ImageRequest;
//!
//! # async fn build() -> Result<(), Box<dyn std::error::Error>> {
//! let images = Surroundings::from_process()?.image_builder().await?;
//! let recipe = images.read(&ImageRequest::for_project(".", CLAUDE.image)).await?;
//! let built = images.ensure(&recipe, &mut Discard).await?;
//! assert!(built.image.tag.repository().starts_with("agent-loop-sandbox-claude"));
//! # Ok(())
//! # }
//! ```

mod builder;
mod context;
mod copied_files;
mod dependencies;
mod difference;
mod dockerignore;
mod engine_state;
mod environment;
mod error;
mod executor;
mod fingerprint;
mod flake;
pub mod labels;
pub mod load;
mod local_images;
mod lock;
mod parallel;
mod plan;
mod platform;
mod project;
mod prune;
mod pulls;
mod rebuild_check;
mod reference;
mod registry;
mod request;
mod single_dockerfile;
mod spec;
mod stages;
mod status;
mod tag;
mod templates;
#[cfg(test)]
mod tests;

pub use builder::{EnsuredImage, ImageBuilder, ImageObserver};
pub use context::{BuildContext, HashCache};
pub use difference::{FileDifference, ImageDifference, LayerDifference, LayerFileChange};
pub use engine_state::{BaseIdentity, BaseImage, EngineState, PullHistory, TaggedImage};
pub use environment::BuildEnvironment;
pub use error::ImageError;
pub use fingerprint::ImageFingerprint;
pub use flake::SkippedFlake;
pub use local_images::LocalImage;
pub use lock::{ImageLock, LockedImage};
pub use plan::{
    ImageAction, ImagePlan, ImageStep, OnFailure, PlannedBase, PlannedDockerfile, PlannedImage, StepReason,
};
pub use platform::{Platform, UnknownPlatform};
pub use project::{ProjectLayer, ProjectLayerSource};
pub use prune::{KeepReason, PruneDecision, PruneRules};
pub use rebuild_check::RebuildCheck;
pub use reference::ImageReference;
pub use registry::RegistryImage;
pub use request::{BuildSource, DEFAULT_BASE, ImageRecipe, ImageRequest};
pub use single_dockerfile::SingleDockerfile;
pub use spec::{BuildMode, DEFAULT_REFRESH, DockerfileContext, ImageSpec, Rebuild};
pub use status::{ImageRole, ImageState, ImageStatus};
pub use tag::{ImageTag, ProjectName};
