//! What the state ref of a run contains, read without the run's directory.

use std::path::Path;

use jiff::Timestamp;

use crate::scm::Checkpoints;
use crate::state::{JournalEntry, JournalLine, RunFacts, RunOwner};

use super::RunError;
use super::lease::Lease;
use super::saved::journal_in;

/// The newest checkpoint of a run.
#[derive(Clone, Debug)]
pub struct StateRef {
    /// What is fixed about the run.
    pub facts: RunFacts,
    /// Its journal.
    pub journal: Vec<JournalLine>,
    /// The process that saved it.
    pub owner: Option<RunOwner>,
    leased_until: Option<Timestamp>,
}

impl StateRef {
    /// Reads the newest checkpoint. `None` if the run has no checkpoint.
    pub async fn read(checkpoints: &Checkpoints) -> Result<Option<Self>, RunError> {
        let Some(checkpoint) = checkpoints.load().await? else {
            return Ok(None);
        };
        let Some(facts) = checkpoints.file(&checkpoint.commit, "run.json").await? else {
            return Ok(None);
        };
        let path = format!("{}:run.json", checkpoints.ref_name());
        let lease = Lease::read(checkpoints, &checkpoint.commit).await?;
        Ok(Some(Self {
            facts: RunFacts::parse(Path::new(&path), &facts)?,
            journal: journal_in(checkpoints, &checkpoint).await?,
            leased_until: lease.as_ref().map(|lease| lease.until),
            owner: lease.map(|lease| lease.owner),
        }))
    }

    /// Whether a process may be working on the run: its lease is valid, and the run did not end.
    #[must_use]
    pub fn is_leased(&self, now: Timestamp) -> bool {
        let newest = self.journal.last().map(|line| &line.entry);
        let ended = matches!(newest, Some(JournalEntry::Ended { .. }));
        !ended && self.leased_until.is_some_and(|until| until > now)
    }
}
