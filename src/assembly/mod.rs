//! From a configuration and the surroundings of the process to the parts of a run.
//!
//! ```no_run
//! use ralph::{Claude, Docker, Ralph};
//!
//! # async fn example() -> Result<(), ralph::AssemblyError> {
//! let ralph = Ralph::builder().sandbox(Docker::new()).agent(Claude::new()).build().await?;
//! println!("at most {} iterations", ralph.config().settings.budget.max_iterations);
//! let run = ralph.start().await?;
//! println!("{}", run.dir().path().display());
//! println!("{}", run.drive().await?.reason);
//! # Ok(())
//! # }
//! ```
//!
//! This is the only module below `cli` that reads [`crate::config`]: it chooses the provider, the policy, the image, the
//! agents and their credentials, and hands finished parts to [`crate::runner`]. Nothing here prints: warnings go to an
//! [`AssemblyReporter`].

pub(crate) mod agents;
pub(crate) mod broker;
mod builder;
mod choice;
mod command_env;
pub(crate) mod configuration;
mod control;
pub(crate) mod credentials;
mod diagnosis;
pub(crate) mod equipment;
mod error;
mod error_topic;
mod event_log;
mod forge;
pub(crate) mod image;
#[cfg(feature = "serve")]
mod image_overview;
pub(crate) mod issue;
pub(crate) mod issue_queue;
mod issue_task;
pub(crate) mod litellm_config;
mod model_overview;
pub(crate) mod package_clients;
mod person_command;
pub(crate) mod preflight;
mod profile_choice;
pub(crate) mod provider;
pub(crate) mod provider_image;
#[cfg(feature = "store")]
pub(crate) mod queue;
pub(crate) mod queued_run;
mod ralph;
pub(crate) mod readiness;
mod removal;
mod reporter;
mod reporting;
pub(crate) mod repository_lack;
mod respond;
pub(crate) mod routes;
mod run_edit;
mod run_pull_request;
mod run_sandbox;
mod run_status;
mod run_usage;
pub(crate) mod run_view;
mod setting_overview;
mod settings;
pub(crate) mod spec;
mod state_remote;
#[cfg(feature = "store")]
pub(crate) mod store;
pub(crate) mod stored_credentials;
pub(crate) mod summary;
mod surroundings;
#[cfg(test)]
mod tests;
mod writable;

use std::sync::Arc;

use crate::agent::Agent;
use crate::config::Config;
use crate::sandbox::Provider;

pub use crate::config::DashboardMode;
pub use builder::RalphBuilder;
pub(crate) use builder::read_task_text;
pub use choice::{AgentChoice, Docker, Local, SandboxChoice};
pub use control::RunControl;
pub use error::{AssemblyError, AssemblyErrorKind};
pub(crate) use error::{describe_finding, io_error};
pub use error_topic::ErrorTopic;
#[cfg(feature = "serve")]
pub use image_overview::ImageOverview;
pub use model_overview::{ModelOverview, PriceOrigin};
pub use person_command::PersonCommand;
pub use ralph::{ActiveRun, Ralph};
pub use reporter::{AssemblyReporter, SilentReporter};
pub use run_edit::RunUpdate;
pub use run_pull_request::{FailedChecks, RunPullRequest};
pub use run_sandbox::{RunSandbox, SandboxOverview};
pub use run_status::{CheckboxStatus, InterventionStatus, RunStatus};
pub use run_usage::{BudgetUse, CheckboxUsage, RunUsage};
pub use run_view::{DiffRange, NetworkUse, RunFile};
pub use setting_overview::SettingOverview;
use settings::settings;
pub use stored_credentials::CredentialStatus;
pub use surroundings::Surroundings;

/// What every step of the assembly works with.
#[derive(Clone)]
pub(crate) struct AssemblyContext {
    /// The environment, the directories and the clock of the process.
    pub(crate) surroundings: Surroundings,
    /// Receives warnings and progress.
    pub(crate) reporter: Arc<dyn AssemblyReporter>,
    /// Replaces the configured provider.
    pub(crate) provider: Option<Arc<dyn Provider>>,
    /// Replaces the configured agents.
    pub(crate) agent: Option<Arc<dyn Agent>>,
}

impl AssemblyContext {
    /// A context in which everything is configured.
    pub(crate) fn new(surroundings: Surroundings, reporter: Arc<dyn AssemblyReporter>) -> Self {
        Self {
            surroundings,
            reporter,
            provider: None,
            agent: None,
        }
    }

    /// The name of the run's agent.
    fn agent_name(&self, config: &Config) -> String {
        match &self.agent {
            Some(agent) => agent.name().to_owned(),
            None => config.settings.agent.kind.name.to_owned(),
        }
    }
}
