//! The configuration: files, environment and flags in layers, checked strictly.
//!
//! [`load`] reads every layer, reports all mistakes with their positions, and returns a [`Config`] whose values know where
//! they came from. The caller passes the environment in.
//!
//! ```
//! use ralph::config::{ConfigInputs, ConfigLayer, load};
//!
//! # fn main() -> Result<(), ralph::config::ConfigError> {
//! let config = load(&ConfigInputs { project_dir: "path/to/project".into(), ..ConfigInputs::default() })?;
//! assert_eq!(config.settings.budget.max_iterations.get(), 30);
//! assert_eq!(config.origin("budget.max_iterations").unwrap().layer, ConfigLayer::Default);
//! # Ok(())
//! # }
//! ```

mod agent_loop;
mod api_access;
mod choice;
mod dashboard;
mod database;
mod daytona;
mod de;
mod docker;
mod document;
mod dotenv;
pub mod env_vars;
mod error;
mod key;
mod known;
mod layer;
mod loaded;
mod models;
mod models_yaml;
mod network;
mod notify;
mod quantity;
mod read;
mod schema;
mod service;
mod settings;
pub mod show;
mod stack;
#[cfg(test)]
mod tests;
mod timers;
mod toml_file;
mod value;
mod variables;
mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use document::ConfigDocument;
use stack::{FileReader, LayerStack};
use variables::EnvVariables;

pub use api_access::ApiAccessSettings;
pub use choice::{
    DashboardMode, DoctorApply, ForgeType, LadderRung, OnFullAudit, OnOverlap, OnUnenforceable,
    OnWeakenedTests, SandboxType, SealSetting, WorkspaceSetting,
};
pub use dashboard::DashboardSettings;
pub use daytona::DaytonaSettings;
pub use docker::DockerSettings;
pub use error::{ConfigError, ConfigFinding};
pub use key::KeyPath;
pub use layer::{ConfigLayer, FilePosition, SettingOrigin, SettingPlace};
pub use loaded::Config;
pub use models::ModelSettings;
pub use notify::{NotifyKind, NotifySettings};
pub(crate) use read::is_request_url;
pub use schema::schema;
pub use service::ServiceSettings;
pub use settings::{
    AgentSettings, BudgetSettings, ConfigSettings, CustomAgentSettings, DoctorSettings, DoneSettings,
    ForgeGitHubSettings, ForgeSettings, GitSettings, GutterSettings, ImageSettings, ModelEndpointSettings,
    NetworkSettings, NixImageSettings, PromptSettings, ResourceSettings, SandboxSettings, TaskSettings,
};
pub use timers::TimerSettings;
pub use worker::WorkerSettings;

/// Every setting with its default and what it means.
pub const DEFAULTS: &str = include_str!("../../templates/default.toml");

/// The sources of a configuration.
#[derive(Clone, Default)]
pub struct ConfigInputs {
    /// The process's environment.
    pub env: BTreeMap<String, String>,
    /// The user's own file, which may be missing.
    pub user_file: Option<PathBuf>,
    /// The directory of the project, with `ralph.toml` and the other optional files of the project layer.
    pub project_dir: PathBuf,
    /// A file that replaces the project's `ralph.toml`. It must exist.
    pub config_file: Option<PathBuf>,
    /// Settings of the task's frontmatter.
    pub task: Vec<ConfigOverride>,
    /// Settings of flags.
    pub flags: Vec<ConfigOverride>,
}

/// A value for one key as plain text, from the task or from a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigOverride {
    /// The key, for example `sandbox.type`.
    pub key: String,
    /// The value. A list is written as `a,b` or as in TOML.
    pub value: String,
    /// Where it comes from.
    pub place: SettingPlace,
}

/// Reads every layer. Fails with everything that is wrong in any of them.
pub fn load(inputs: &ConfigInputs) -> Result<Config, ConfigError> {
    let mut stack = LayerStack::with_defaults();
    if let Some(path) = &inputs.user_file {
        add_optional(&mut stack, ConfigLayer::User, path, toml_file::read)?;
    }
    add_project(&mut stack, inputs)?;
    stack.add_overrides(ConfigLayer::Task, &inputs.task);
    let variables = add_environment(&mut stack, inputs)?;
    stack.add_overrides(ConfigLayer::Flag, &inputs.flags);
    Config::new(stack, variables)
}

fn add_project(stack: &mut LayerStack, inputs: &ConfigInputs) -> Result<(), ConfigError> {
    let file = |name| inputs.project_dir.join(name);
    let layer = ConfigLayer::Project;
    add_optional(stack, layer, &file(".agent-loop/config.json"), agent_loop::read)?;
    add_optional(stack, layer, &file("config/models.yaml"), models_yaml::read)?;
    match &inputs.config_file {
        None => add_optional(stack, layer, &file("ralph.toml"), toml_file::read),
        Some(path) => {
            let text = document::read_required(path)?;
            add_text(stack, layer, path, &text, toml_file::read);
            Ok(())
        }
    }
}

fn add_optional(
    stack: &mut LayerStack,
    layer: ConfigLayer,
    path: &Path,
    read: FileReader,
) -> Result<(), ConfigError> {
    if let Some(text) = document::read_optional(path)? {
        add_text(stack, layer, path, &text, read);
    }
    Ok(())
}

fn add_text(stack: &mut LayerStack, layer: ConfigLayer, path: &Path, text: &str, read: FileReader) {
    let path = Some(path);
    stack.add_file(read, ConfigDocument { layer, path, text });
}

/// Adds the environment of the process and the `.env` next to the project's configuration.
fn add_environment(stack: &mut LayerStack, inputs: &ConfigInputs) -> Result<EnvVariables, ConfigError> {
    let beside = inputs.config_file.as_deref().and_then(Path::parent);
    let path = beside.unwrap_or(&inputs.project_dir).join(".env");
    let text = document::read_optional(&path)?.unwrap_or_default();
    let variables = EnvVariables::new(&inputs.env, dotenv::read(&path, &text, &mut stack.findings));
    stack.add(variables.named_settings());
    let generic = variables.generic_settings(&stack.profiles(), &mut stack.findings);
    stack.add(generic);
    Ok(variables)
}
