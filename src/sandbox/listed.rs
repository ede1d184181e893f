//! Sandboxes as they are found later: who has them, and whether anybody still does.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

use crate::id::RunId;

/// A sandbox that was found, whoever made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// What to call it.
    pub id: String,
    /// The provider that made it.
    pub provider: &'static str,
    /// The run that has it, or had it last, where that can be read.
    pub run: Option<RunId>,
    /// Whether it runs.
    pub activity: Activity,
    /// Whether somebody has it.
    pub standing: Standing,
    /// Who has it, or had it last, where that can be read.
    pub owner: Option<String>,
    /// The image it was made from.
    pub image: Option<String>,
    /// Its workspace: on this machine, or inside where it has none here.
    pub workspace: PathBuf,
    /// When it was made.
    pub created: Option<Timestamp>,
}

/// Whether a sandbox that was found runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// It does.
    Running,
    /// It was put to rest, or ended.
    Stopped,
    /// Only its workspace is left.
    Removed,
}

impl Activity {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Removed => "removed",
        }
    }
}

/// Whether somebody has a sandbox that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Somebody does, or nobody can say from here.
    InUse,
    /// The process that had it has ended.
    OwnerEnded,
    /// Its workspace is gone, and it is good for nothing.
    WorkspaceGone,
}

impl Standing {
    /// Whether it is nobody's.
    #[must_use]
    pub fn is_orphan(self) -> bool {
        match self {
            Self::InUse => false,
            Self::OwnerEnded | Self::WorkspaceGone => true,
        }
    }

    /// The words for it.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::InUse => "in use",
            Self::OwnerEnded => "owner ended",
            Self::WorkspaceGone => "workspace gone",
        }
    }
}

/// Which sandboxes may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removable {
    /// Those that are nobody's at that moment.
    Orphans,
    /// Any: a person named it.
    Any,
}
