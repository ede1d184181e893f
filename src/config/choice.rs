//! Settings whose value is one of a few names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The provider of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxType {
    /// A container.
    Docker,
    /// A sandbox of Docker Sandboxes.
    DockerSandbox,
    /// A virtual machine on macOS.
    Tart,
    /// A sandbox at Daytona.
    Daytona,
    /// A directory of the host. Isolates nothing else.
    Local,
}

impl SandboxType {
    /// Every provider.
    pub const ALL: [Self; 5] = [
        Self::Docker,
        Self::DockerSandbox,
        Self::Tart,
        Self::Daytona,
        Self::Local,
    ];

    /// Its name in `sandbox.type`.
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

/// How the `docker` provider seals networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SealSetting {
    /// Handed where the engine shares the kernel of the host, relayed elsewhere.
    Auto,
    /// Sockets are handed to the gateway.
    Handed,
    /// Connections are relayed over a stream of the engine.
    Relayed,
}

/// Where the `docker` provider keeps workspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceSetting {
    /// Shared where the engine is on this host and does not map user ids, in a volume elsewhere.
    Auto,
    /// In a directory of this host.
    Shared,
    /// In a volume of the engine.
    Volume,
}

/// What to do when the provider cannot enforce the network policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnUnenforceable {
    /// Refuse to run.
    Error,
    /// Run with a warning.
    Warn,
}

/// What to do when the network audit is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFullAudit {
    /// Say so, and record no more.
    Warn,
    /// Allow no further connections.
    Close,
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

/// One step of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LadderRung {
    /// Start a fresh iteration.
    Rotate,
    /// Switch to the fallback profile.
    Fallback,
    /// Ask the doctor.
    Doctor,
    /// Wait for a person.
    Person,
}

/// What to do when the checks of a task were weakened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnWeakenedTests {
    /// Say so first in the pull request.
    Flag,
    /// Pause if the check passed on the base commit.
    Pause,
}

/// What to do when another open pull request changes the same files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnOverlap {
    /// Do not look.
    Ignore,
    /// Open the pull request with a warning.
    Warn,
    /// Pause before it is opened.
    Pause,
}

/// How much people may ask of runs on the dashboard and over the API. Each mode includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum DashboardMode {
    /// Edit what the run is held to (task, signs, profile, hosts), and control it.
    #[default]
    Autonomous,
    /// Also give it notes.
    Guided,
    /// Also run commands of a list in its sandbox.
    Debug,
}

impl DashboardMode {
    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Autonomous => "AUTONOMOUS",
            Self::Guided => "GUIDED",
            Self::Debug => "DEBUG",
        }
    }
}

/// Whether a diagnosis is applied automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DoctorApply {
    /// It is applied immediately.
    Auto,
    /// A person applies it.
    Wait,
}
