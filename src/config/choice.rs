//! The settings that are a choice among names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which provider makes the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxType {
    /// A container.
    Docker,
    /// Docker's own sandbox product.
    DockerSandbox,
    /// A virtual machine on a Mac.
    Tart,
    /// A sandbox at Daytona.
    Daytona,
    /// A directory on this machine; isolates nothing else.
    Local,
}

impl SandboxType {
    /// The name used in `sandbox.type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::DockerSandbox => "docker-sandbox",
            Self::Tart => "tart",
            Self::Daytona => "daytona",
            Self::Local => "local",
        }
    }
}

/// Which names a sandbox may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkPolicy {
    /// Those in `sandbox.network.allowed`.
    Allowlist,
    /// None.
    Deny,
    /// All.
    AllowAll,
    /// All, and each name is written down so that an allowlist can be made from them.
    Record,
}

/// What to do when the provider cannot enforce the network policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnUnenforceable {
    /// Refuse to run.
    Error,
    /// Run, and say so.
    Warn,
}

/// What edits the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentName {
    /// The `claude` program.
    Claude,
    /// The `codex` program.
    Codex,
    /// The `cursor-agent` program.
    Cursor,
    /// The built-in agent that asks a model for actions.
    Actions,
    /// The program that `agent.custom` names.
    Custom,
}

impl AgentName {
    /// The name used in `agent.name`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Cursor => "cursor",
            Self::Actions => "actions",
            Self::Custom => "custom",
        }
    }
}

/// Where the pull request is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ForgeType {
    /// A branch and a pull-request file in the user's repository.
    Local,
    /// GitHub.
    Github,
}

/// One step of what is done about an agent that goes in circles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LadderRung {
    /// Start a fresh iteration.
    Rotate,
    /// Go on with the fallback profile.
    Fallback,
    /// Ask the doctor.
    Doctor,
    /// Wait for a person.
    Person,
}

/// What happens to a diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DoctorApply {
    /// It is applied at once.
    Auto,
    /// A person applies it.
    Wait,
}
