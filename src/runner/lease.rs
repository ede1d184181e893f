//! The lease in each checkpoint: who works on a run, and until when nobody on another machine may.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::scm::{Checkpoint, Checkpoints};
use crate::state::{JournalEntry, JournalLine, RunDir, RunOwner, StateError};

use super::run::Run;
use super::{RunError, RunParts};

/// Its place in a checkpoint.
pub(super) const LEASE_FILE: &str = "lease.json";

/// Who works on a run, and until when nobody on another machine may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Lease {
    owner: RunOwner,
    until: Timestamp,
}

impl Run<'_> {
    /// The lease this owner writes into each checkpoint: long enough for the agent's work, its checks, and a wait that
    /// has begun.
    pub(super) fn lease(&self) -> Lease {
        let now = self.parts.clock.now();
        let from = self.lease_until.map_or(now, |until| until.max(now));
        let until = from + self.settings.iteration_timeout * 2 + Duration::from_secs(600);
        Lease {
            owner: self.parts.owner.clone(),
            until,
        }
    }
}

/// Refuses a run that another machine works on. `journal` is the checkpoint's.
pub(super) async fn respect(
    parts: &RunParts,
    dir: &RunDir,
    (checkpoints, checkpoint): (&Checkpoints, &Checkpoint),
    journal: &[JournalLine],
) -> Result<(), RunError> {
    let bytes = checkpoints.file(&checkpoint.commit, LEASE_FILE).await?;
    let lease: Option<Lease> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let rests = matches!(
        journal.last().map(|line| &line.entry),
        Some(JournalEntry::Ended { .. })
    );
    match lease {
        // On this machine the lock on the run's directory has already decided.
        Some(lease) if !rests && lease.owner.host != parts.owner.host && lease.until > parts.clock.now() => {
            Err(RunError::State(StateError::Owned {
                run: dir.facts().id.clone(),
                owner: format!("{} until {}", lease.owner, lease.until),
            }))
        }
        _ => Ok(()),
    }
}
