//! Interventions in a run, as files: any process can leave one, and the runner picks it up. No daemon is needed.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{StateError, entries_of, if_exists, to_json, write_atomically};

/// What a person can ask of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Intervention {
    /// End now and drop the unfinished iteration.
    Stop,
    /// Finish this iteration, then pause.
    Pause,
    /// End this iteration with what it has and start another.
    Rotate,
    /// Add a note to the next prompt.
    Note {
        /// The note.
        text: String,
    },
    /// Ask the doctor after this iteration.
    Doctor,
}

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

    /// Leaves an intervention. The runner carries them out in the order of `now`, the time they were left.
    pub fn leave(&self, intervention: &Intervention, now: Timestamp) -> Result<(), StateError> {
        let stamp = now.as_nanosecond();
        let file = self
            .dir
            .join(format!("{stamp:020}-{:08x}.json", fastrand::u32(..)));
        write_atomically(&file, &to_json(&file, intervention)?)
    }

    /// The pending interventions, oldest first, each with its file.
    pub fn pending(&self) -> Result<Vec<(PathBuf, Intervention)>, StateError> {
        let mut paths = entries_of(&self.dir)?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        let mut pending = Vec::new();
        for path in paths {
            // It may be carried out meanwhile: two tasks of a run may look at once.
            if let Some(bytes) = if_exists(fs::read(&path)).map_err(StateError::io("read", &path))? {
                let intervention = serde_json::from_slice(&bytes).map_err(StateError::corrupt(&path))?;
                pending.push((path, intervention));
            }
        }
        Ok(pending)
    }

    /// Removes orders to an earlier owner of the run: they were about its work, and a run that is resumed goes on. Notes and questions to the doctor stay.
    pub fn discard_orders(&self) -> Result<(), StateError> {
        for (path, intervention) in self.pending()? {
            match intervention {
                Intervention::Stop | Intervention::Pause | Intervention::Rotate => self.remove(&path)?,
                Intervention::Note { .. } | Intervention::Doctor => {}
            }
        }
        Ok(())
    }

    /// Removes an intervention that was carried out. Removing it twice is harmless.
    pub fn remove(&self, path: &Path) -> Result<(), StateError> {
        let removed = if_exists(fs::remove_file(path));
        removed.map(drop).map_err(StateError::io("remove", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interventions_are_pending_in_order_until_removed() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = Inbox::new(dir.path());
        assert!(inbox.pending().unwrap().is_empty());
        let asked = [
            Intervention::Note { text: "a".into() },
            Intervention::Rotate,
            Intervention::Stop,
        ];
        for (second, intervention) in (0..).zip(&asked) {
            inbox
                .leave(intervention, Timestamp::from_second(second).unwrap())
                .unwrap();
        }
        let pending = inbox.pending().unwrap();
        assert_eq!(
            pending
                .iter()
                .map(|(_, intervention)| intervention.clone())
                .collect::<Vec<_>>(),
            asked
        );
        for (path, _) in pending {
            inbox.remove(&path).unwrap();
            inbox.remove(&path).unwrap();
        }
        assert!(inbox.pending().unwrap().is_empty());
    }

    #[test]
    fn a_new_owner_keeps_notes_and_discards_orders() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = Inbox::new(dir.path());
        let note = Intervention::Note { text: "a".into() };
        for intervention in [
            &Intervention::Stop,
            &note,
            &Intervention::Pause,
            &Intervention::Rotate,
        ] {
            inbox.leave(intervention, Timestamp::UNIX_EPOCH).unwrap();
        }
        inbox.discard_orders().unwrap();
        let left: Vec<Intervention> = inbox
            .pending()
            .unwrap()
            .into_iter()
            .map(|(_, intervention)| intervention)
            .collect();
        assert_eq!(left, [note]);
    }
}
