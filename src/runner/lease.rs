//! The lease in each checkpoint: the owner of a run, and the time until which no other host may take it over.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::scm::{Checkpoint, Checkpoints};
use crate::state::{JournalEntry, JournalLine, RunOwner, StateError};

use super::{RunError, RunInputs};

/// The path of the lease in a checkpoint.
pub(super) const LEASE_FILE: &str = "lease.json";

/// The owner of a run, and the time until which no other host may take it over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Lease {
    owner: RunOwner,
    until: Timestamp,
}

impl Lease {
    /// A lease that outlasts the agent's work, its checks, and a wait until `waiting_until`.
    pub(super) fn new(inputs: RunInputs<'_>, now: Timestamp, waiting_until: Option<Timestamp>) -> Self {
        let from = waiting_until.map_or(now, |until| until.max(now));
        let until = from + inputs.settings.iteration_timeout * 2 + Duration::from_secs(600);
        Self {
            owner: inputs.parts.owner.clone(),
            until,
        }
    }
}

/// Refuses a run that another host works on. `journal` is the one in the checkpoint.
pub(super) async fn check_lease(
    inputs: RunInputs<'_>,
    checkpoints: &Checkpoints,
    checkpoint: &Checkpoint,
    journal: &[JournalLine],
) -> Result<(), RunError> {
    let Some(bytes) = checkpoints.file(&checkpoint.commit, LEASE_FILE).await? else {
        return Ok(());
    };
    let lease: Lease = serde_json::from_slice(&bytes).map_err(StateError::corrupt(LEASE_FILE))?;
    let (parts, last) = (inputs.parts, journal.last().map(|line| &line.entry));
    let ended = matches!(last, Some(JournalEntry::Ended { .. }));
    // On one host the lock on the run directory has already decided.
    let elsewhere = lease.owner.host != parts.owner.host;
    if !ended && elsewhere && lease.until > parts.clock.now() {
        return Err(RunError::State(StateError::Owned {
            run: inputs.dir.facts().id.clone(),
            owner: format!("{} until {}", lease.owner, lease.until),
        }));
    }
    Ok(())
}
