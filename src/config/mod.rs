//! The configuration: files, environment and flags, checked strictly and laid over each other.
//!
//! [`load`] reads everything, reports every mistake it finds with its place, and returns a [`Config`] whose values
//! know where they came from. Nothing here reads the process's environment; the caller passes it in.

mod agent_loop;
mod choice;
mod de;
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
mod quantity;
mod read;
pub mod reference;
mod schema;
mod settings;
pub mod show;
mod stack;
#[cfg(test)]
mod tests;
mod toml_file;
mod value;
mod variables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use document::Document;
use stack::{Format, Stack};
use variables::Variables;

pub use choice::{
    AgentName, DoctorApply, ForgeType, LadderRung, NetworkPolicy, OnUnenforceable, SandboxType,
};
pub use error::{ConfigError, Finding, Problem};
pub use key::KeyPath;
pub use layer::{FilePlace, Layer, Origin, Place};
pub use loaded::Config;
pub use models::ModelSettings;
pub use schema::schema;
pub use settings::{
    AgentSettings, BudgetSettings, CustomAgentSettings, DaytonaSettings, DoctorSettings, ForgeSettings,
    GitSettings, GutterSettings, ImageSettings, ModelEndpointSettings, NetworkSettings, NixImageSettings,
    PromptSettings, ResourceSettings, SandboxSettings, Settings, TaskSettings, TimerSettings,
};

/// Every setting with its default and what it means.
pub const DEFAULTS: &str = include_str!("../../templates/default.toml");

/// What a configuration is made from.
#[derive(Clone, Default)]
pub struct Inputs {
    /// The process's environment.
    pub env: BTreeMap<String, String>,
    /// The user's own file; it need not exist.
    pub user_file: Option<PathBuf>,
    /// The project's directory, with `ralph.toml` and the other files of the project layer, all optional.
    pub project_dir: PathBuf,
    /// The file to read in place of the project's `ralph.toml`; it must exist.
    pub config_file: Option<PathBuf>,
    /// What the task's frontmatter sets.
    pub task: Vec<Override>,
    /// What flags set.
    pub flags: Vec<Override>,
}

/// A value given as plain text for one key, by the task or by a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The key, for example `sandbox.type`.
    pub key: String,
    /// The value; the items of a list are separated by commas.
    pub value: String,
    /// Where it was given.
    pub place: Place,
}

/// Reads every layer. Fails with everything that is wrong in any of them.
pub fn load(inputs: &Inputs) -> Result<Config, ConfigError> {
    let mut stack = Stack::with_defaults();
    if let Some(path) = &inputs.user_file {
        add_optional(&mut stack, Layer::User, path, Format::Toml)?;
    }
    add_project(&mut stack, inputs)?;
    stack.add_overrides(Layer::Task, &inputs.task);
    let variables = add_environment(&mut stack, inputs)?;
    stack.add_overrides(Layer::Flag, &inputs.flags);
    Config::new(stack, variables)
}

fn add_project(stack: &mut Stack, inputs: &Inputs) -> Result<(), ConfigError> {
    let file = |name| inputs.project_dir.join(name);
    let layer = Layer::Project;
    add_optional(stack, layer, &file(".agent-loop/config.json"), Format::AgentLoop)?;
    add_optional(stack, layer, &file("config/models.yaml"), Format::ModelsYaml)?;
    match &inputs.config_file {
        None => add_optional(stack, layer, &file("ralph.toml"), Format::Toml),
        Some(path) => {
            let text = document::read_required(path)?;
            stack.add_file(Format::Toml, Document::of_file(layer, path, &text));
            Ok(())
        }
    }
}

fn add_optional(stack: &mut Stack, layer: Layer, path: &Path, format: Format) -> Result<(), ConfigError> {
    if let Some(text) = document::read_optional(path)? {
        stack.add_file(format, Document::of_file(layer, path, &text));
    }
    Ok(())
}

/// Adds the process's environment and the `.env` beside the project's configuration.
fn add_environment(stack: &mut Stack, inputs: &Inputs) -> Result<Variables, ConfigError> {
    let beside = inputs.config_file.as_deref().and_then(Path::parent);
    let path = beside.unwrap_or(&inputs.project_dir).join(".env");
    let text = document::read_optional(&path)?;
    let (variables, findings) =
        Variables::new(&inputs.env, text.as_deref().map(|text| (path.as_path(), text)));
    stack.findings.extend(findings);
    stack.add(variables.named_settings(stack.known));
    let (entries, findings) = variables.generic_settings(stack.known, &stack.profiles());
    stack.findings.extend(findings);
    stack.add(entries);
    Ok(variables)
}
