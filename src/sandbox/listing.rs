//! Sandboxes as `ralph sandbox ls` shows them: who owns them, and whether the owner still exists.

use std::path::PathBuf;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::id::RunId;

/// A sandbox of any run, as found on an engine or on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SandboxListing {
    /// Its name.
    pub id: String,
    /// The provider that created it.
    pub provider: &'static str,
    /// The run that owns it, or owned it last, if known.
    pub run: Option<RunId>,
    /// Whether it belongs to the provider's own data directory. Those of other directories are their own to sweep.
    pub is_own: bool,
    /// Whether it runs.
    pub activity: SandboxActivity,
    /// Whether its owner still exists.
    pub standing: SandboxOwnership,
    /// The process that owns it, or owned it last, if known.
    pub owner: Option<String>,
    /// The image it was created from.
    pub image: Option<String>,
    /// Its workspace on the host, or the path inside if the host has none.
    pub workspace: PathBuf,
    /// When it was created.
    pub created: Option<Timestamp>,
}

/// Whether a listed sandbox runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxActivity {
    /// It runs.
    Running,
    /// It was stopped, or it ended.
    Stopped,
    /// Only its workspace is left.
    Removed,
}

impl SandboxActivity {
    /// The state as one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Removed => "removed",
        }
    }
}

/// Whether the owner of a listed sandbox still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxOwnership {
    /// The owner exists, or this host cannot know.
    InUse,
    /// The owner process has ended.
    OwnerEnded,
    /// The workspace was removed, so the sandbox cannot be used any more.
    WorkspaceGone,
}

impl SandboxOwnership {
    /// Whether the sandbox can be removed without harm to a run.
    #[must_use]
    pub fn is_orphan(self) -> bool {
        match self {
            Self::InUse => false,
            Self::OwnerEnded | Self::WorkspaceGone => true,
        }
    }

    /// The state in words.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::InUse => "in use",
            Self::OwnerEnded => "owner ended",
            Self::WorkspaceGone => "workspace gone",
        }
    }
}

/// Which sandboxes [`Provider::remove`](super::Provider::remove) may remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalScope {
    /// Only sandboxes that are orphans at that moment.
    Orphans,
    /// Any sandbox: a person named it.
    Any,
}
