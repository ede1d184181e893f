//! Requests to a running run, over files: any terminal can leave one, the runner picks them up. No daemon.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{StateError, write_atomically};

/// What a person can ask of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Intervention {
    /// End now; the unfinished iteration is dropped.
    Stop,
    /// Finish this iteration, then wait for a person.
    Pause,
    /// End this iteration with what it has and begin a fresh one.
    Rotate,
    /// Put this into the notes of the next prompt.
    Note {
        /// The note.
        text: String,
    },
    /// Ask the doctor after this iteration.
    Doctor,
}

/// Where requests to one run are left.
#[derive(Clone, Debug)]
pub struct Inbox {
    dir: PathBuf,
}

impl Inbox {
    /// The inbox of the run in `run_dir`.
    #[must_use]
    pub fn of(run_dir: &Path) -> Self {
        Self {
            dir: run_dir.join("control"),
        }
    }

    /// Leaves a request. The runner takes requests in the order of `now`, the time they were left.
    pub fn leave(&self, request: &Intervention, now: Timestamp) -> Result<(), StateError> {
        let stamp = now.as_nanosecond();
        let name = format!("{stamp:020}-{:08x}.json", fastrand::u32(..));
        let text = serde_json::to_vec(request).unwrap_or_default();
        write_atomically(&self.dir.join(name), &text)
    }

    /// The requests that wait, oldest first, each with the file that holds it.
    pub fn waiting(&self) -> Result<Vec<(PathBuf, Intervention)>, StateError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StateError::io("list", &self.dir)(error)),
        };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .collect();
        paths.sort();
        let parse = |path: PathBuf| {
            let request = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
            Some((path, request))
        };
        Ok(paths.into_iter().filter_map(parse).collect())
    }

    /// Removes orders to a process that is gone: they were about what it did, and whoever takes the run up means to go
    /// on. Notes and questions to the doctor stay.
    pub fn forget_orders(&self) -> Result<(), StateError> {
        for (path, request) in self.waiting()? {
            match request {
                Intervention::Stop | Intervention::Pause | Intervention::Rotate => self.done_with(&path)?,
                Intervention::Note { .. } | Intervention::Doctor => {}
            }
        }
        Ok(())
    }

    /// Removes a request that was carried out.
    pub fn done_with(&self, path: &Path) -> Result<(), StateError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StateError::io("remove", path)(error))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_in_order_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = Inbox::of(dir.path());
        assert!(inbox.waiting().unwrap().is_empty());
        let asked = [
            Intervention::Note { text: "a".into() },
            Intervention::Rotate,
            Intervention::Stop,
        ];
        for (second, request) in (0..).zip(&asked) {
            inbox
                .leave(request, Timestamp::from_second(second).unwrap())
                .unwrap();
        }
        let waiting = inbox.waiting().unwrap();
        assert_eq!(
            waiting
                .iter()
                .map(|(_, request)| request.clone())
                .collect::<Vec<_>>(),
            asked
        );
        for (path, _) in waiting {
            inbox.done_with(&path).unwrap();
            inbox.done_with(&path).unwrap();
        }
        assert!(inbox.waiting().unwrap().is_empty());
    }

    #[test]
    fn a_new_owner_finds_only_what_was_said_to_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = Inbox::of(dir.path());
        let note = Intervention::Note { text: "a".into() };
        for request in [
            &Intervention::Stop,
            &note,
            &Intervention::Pause,
            &Intervention::Rotate,
        ] {
            inbox.leave(request, Timestamp::UNIX_EPOCH).unwrap();
        }
        inbox.forget_orders().unwrap();
        let left: Vec<Intervention> = inbox
            .waiting()
            .unwrap()
            .into_iter()
            .map(|(_, request)| request)
            .collect();
        assert_eq!(left, [note]);
    }
}
