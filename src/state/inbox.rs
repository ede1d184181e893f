//! Interventions in a run, as files: any process can leave one, and the runner picks it up. No daemon is needed.

use std::fs;
use std::path::{Path, PathBuf};

use super::{InterventionRequest, StateError, entries_of, if_exists, to_json, write_atomically};

/// The extension of a request that is waiting, and of an order that was followed and is not in the journal yet.
const WAITING: &str = "json";
const FOLLOWED: &str = "followed";

/// The interventions in one run that are not carried out yet.
#[derive(Clone, Debug)]
pub struct Inbox {
    dir: PathBuf,
}

impl Inbox {
    /// The inbox in the run directory `run_dir`.
    #[must_use]
    pub fn new(run_dir: &Path) -> Self {
        Self {
            dir: run_dir.join("control"),
        }
    }

    /// Leaves a request. The runner carries requests out in the order of their time. Leaving one twice is harmless.
    pub fn leave(&self, request: &InterventionRequest) -> Result<(), StateError> {
        let file = self.file(&request.id, WAITING);
        write_atomically(&file, &to_json(&file, request)?)
    }

    /// The waiting requests, oldest first.
    pub fn pending(&self) -> Result<Vec<InterventionRequest>, StateError> {
        self.with_extension(WAITING)
    }

    /// The orders that were followed and are not in the journal yet.
    pub fn followed(&self) -> Result<Vec<InterventionRequest>, StateError> {
        self.with_extension(FOLLOWED)
    }

    /// Marks an order as followed: it no longer waits, but the journal does not have it yet.
    pub fn follow(&self, id: &str) -> Result<(), StateError> {
        let file = self.file(id, WAITING);
        let renamed = if_exists(fs::rename(&file, self.file(id, FOLLOWED)));
        renamed.map(drop).map_err(StateError::io("rename", file))
    }

    /// Removes orders to an earlier owner of the run: they were about its work, and a run that is resumed goes on. Other
    /// requests stay.
    pub fn discard_orders(&self) -> Result<(), StateError> {
        let orders = self.pending()?.into_iter();
        orders
            .filter(|request| request.intervention.is_order())
            .try_for_each(|request| self.remove(&request.id))
    }

    /// Removes a request whose result is in the journal. Removing it twice is harmless.
    pub fn remove(&self, id: &str) -> Result<(), StateError> {
        for extension in [WAITING, FOLLOWED] {
            let file = self.file(id, extension);
            if_exists(fs::remove_file(&file)).map_err(StateError::io("remove", file))?;
        }
        Ok(())
    }

    fn file(&self, id: &str, extension: &str) -> PathBuf {
        self.dir.join(format!("{id}.{extension}"))
    }

    fn with_extension(&self, extension: &str) -> Result<Vec<InterventionRequest>, StateError> {
        let mut requests: Vec<InterventionRequest> = Vec::new();
        for path in entries_of(&self.dir)? {
            if path.extension().is_none_or(|found| found != extension) {
                continue;
            }
            // It may be carried out meanwhile: two tasks of a run may look at once.
            if let Some(bytes) = if_exists(fs::read(&path)).map_err(StateError::io("read", &path))? {
                requests.push(serde_json::from_slice(&bytes).map_err(StateError::corrupt(&path))?);
            }
        }
        requests.sort_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
        Ok(requests)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::state::Intervention;

    fn leave(inbox: &Inbox, intervention: Intervention, second: i64) -> InterventionRequest {
        let at = Timestamp::from_second(second).unwrap();
        let request = InterventionRequest::new(intervention, "a person", at);
        inbox.leave(&request).unwrap();
        request
    }

    #[test]
    fn requests_are_pending_in_order_until_removed() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = Inbox::new(dir.path());
        assert!(inbox.pending().unwrap().is_empty());
        let note = leave(&inbox, Intervention::Note { text: "a".into() }, 1);
        let stop = leave(&inbox, Intervention::Stop, 3);
        let rotate = leave(&inbox, Intervention::Rotate, 2);
        inbox.leave(&note).unwrap();
        let asked = [note, rotate, stop];
        assert_eq!(inbox.pending().unwrap(), asked);
        for request in &asked {
            inbox.remove(&request.id).unwrap();
            inbox.remove(&request.id).unwrap();
        }
        assert!(inbox.pending().unwrap().is_empty());
    }

    #[test]
    fn a_followed_order_no_longer_waits_and_is_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = Inbox::new(dir.path());
        let stop = leave(&inbox, Intervention::Stop, 1);
        inbox.follow(&stop.id).unwrap();
        inbox.follow(&stop.id).unwrap();
        assert!(inbox.pending().unwrap().is_empty());
        assert_eq!(inbox.followed().unwrap(), std::slice::from_ref(&stop));
        inbox.remove(&stop.id).unwrap();
        assert!(inbox.followed().unwrap().is_empty());
    }

    #[test]
    fn a_new_owner_keeps_notes_and_discards_orders() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = Inbox::new(dir.path());
        leave(&inbox, Intervention::Stop, 1);
        let note = leave(&inbox, Intervention::Note { text: "a".into() }, 2);
        leave(&inbox, Intervention::Pause, 3);
        leave(&inbox, Intervention::Rotate, 4);
        inbox.discard_orders().unwrap();
        assert_eq!(inbox.pending().unwrap(), [note]);
    }
}
