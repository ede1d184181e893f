//! Images: what a sandbox starts from, decided before anything is built.
//!
//! An image is a *base* with an agent and its tools and, on top, a *project layer* from `.agent-loop/`
//! ([`ProjectLayer::read`]). An [`ImageSpec`] says what is wanted, [`Facts`] what the engine has, and [`plan`] what must
//! be done: nothing, when an image of that content is there. The content's hash is the tag; what goes into it is written
//! down in `docs/reference/image-hash.md`.

mod agent;
mod context;
mod dependencies;
mod digest;
mod dockerignore;
mod facts;
pub mod labels;
pub mod load;
mod parallel;
mod plan;
mod project;
mod reference;
mod spec;
mod stages;
mod tag;
mod templates;
#[cfg(test)]
mod tests;

pub use agent::{ImageAgent, Platform};
pub use context::{Context, ContextError, Entry, EntryKind, FileMode, HashCache, SpecialFile};
pub use dependencies::{Dependencies, DependenciesError, Package, PackageError};
pub use digest::{Digest, DigestError};
pub use dockerignore::{Ignore, IgnoreError, PatternError};
pub use facts::{BaseIdentity, BaseImage, Facts, OwnImage, Pulls};
pub use labels::Labels;
pub use plan::{Action, OnFailure, Plan, PlannedBase, PlannedImage, Reason, Step, plan};
pub use project::{LayerSource, ProjectError, ProjectLayer};
pub use reference::{ImageReference, ReferenceError};
pub use spec::{DEFAULT_REFRESH, ImageSpec, Mode, Rebuild, SpecError};
pub use stages::StagesError;
pub use tag::{ImageTag, ProjectName};
pub use templates::{TemplateError, base_dockerfile};
