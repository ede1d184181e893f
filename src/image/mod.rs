//! Images: what a sandbox starts from, decided before anything is built.
//!
//! An image is a *base* with an agent and its tools and, on top, a *project layer* from `.agent-loop/`
//! ([`ProjectLayer::read`]). An [`ImageSpec`] says what is wanted, [`Facts`] what the engine has, and [`plan`] what must
//! be done: nothing, when an image of that content is there. The content's hash is the tag; what goes into it is written
//! down in `docs/reference/image-hash.md`.
//!
//! A [`Wish`] is what a user asks for; [`Wish::read`] makes a spec of it, [`survey`] asks an engine for the facts, and
//! [`ensure`] does what the plan says. Whatever starts a sandbox gets its image from there.

mod agent;
mod check;
mod context;
mod dependencies;
mod difference;
mod dockerignore;
mod ensure;
mod error;
mod facts;
mod fingerprint;
mod flake;
pub mod labels;
pub mod load;
mod parallel;
mod plan;
mod project;
mod prune;
mod pulls;
mod reference;
mod remote;
mod spec;
mod stages;
mod state;
mod stock;
mod survey;
mod tag;
mod templates;
#[cfg(test)]
mod tests;
mod tools;
mod wish;

pub use agent::{Platform, UnknownPlatform};
pub use check::{Checked, check};
pub use context::{Context, ContextError, Entry, EntryKind, FileMode, HashCache, SpecialFile};
pub use dependencies::{Dependencies, DependenciesError, Package, PackageError};
pub use difference::{Difference, FileDifference, Files, Found};
pub use dockerignore::{Ignore, IgnoreError, PatternError};
pub use ensure::{Ensured, Observer, ensure, settle};
pub use error::ImageError;
pub use facts::{BaseIdentity, BaseImage, Facts, OwnImage, Pulls};
pub use fingerprint::Fingerprint;
pub use flake::PassedOver;
pub use labels::Labels;
pub use plan::{Action, OnFailure, Plan, PlannedBase, PlannedImage, Reason, Step, parts, plan};
pub use project::{LayerSource, ProjectError, ProjectLayer};
pub use prune::{Fate, KeptFor, PruneRules, judge, remove};
pub use reference::{ImageReference, ReferenceError};
pub use remote::{Shared, present};
pub use spec::{DEFAULT_REFRESH, ImageSpec, Mode, OwnDockerfile, Rebuild, SpecError};
pub use stages::StagesError;
pub use state::{Role, State};
pub use stock::{Arrival, Stocked, Usage, stock};
pub use survey::survey;
pub use tag::{ImageTag, ProjectName};
pub use templates::{TemplateError, base_dockerfile};
pub use tools::Tools;
pub use wish::{Origin, Recipe, Wish};
