//! From a configuration and the surroundings of the process to the parts of a run.
//!
//! This is the only module below `cli` that reads [`crate::config`]: it chooses the provider, the policy, the image, the
//! agents and their credentials, and hands finished parts to [`crate::runner`]. Nothing here prints: warnings go to an
//! [`AssemblyReporter`].

pub(crate) mod agents;
pub(crate) mod broker;
pub(crate) mod clients;
pub(crate) mod configuration;
pub(crate) mod credentials;
mod error;
pub(crate) mod image;
pub(crate) mod parts;
pub(crate) mod preflight;
pub(crate) mod provider;
mod reporter;
mod settings;
pub(crate) mod spec;
mod surroundings;

use std::sync::Arc;

pub(crate) use error::io;
pub use error::{AssemblyError, AssemblyErrorKind};
pub use reporter::{AssemblyReporter, SilentReporter};
pub(crate) use settings::settings;
pub use surroundings::Surroundings;

/// What every step of the assembly works with.
#[derive(Clone)]
pub(crate) struct AssemblyContext {
    /// The environment, the directories and the clock of the process.
    pub(crate) surroundings: Surroundings,
    /// Receives warnings and progress.
    pub(crate) reporter: Arc<dyn AssemblyReporter>,
}
