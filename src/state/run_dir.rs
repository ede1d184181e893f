//! The directory of one run on the host, and the directory of all of them.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{ObjectId, RunId};

use super::{Inbox, Journal, JournalLine, RunLock, RunOwner, StateError, write_atomically};

/// How the names of files and directories begin that are there for a moment only.
const LEFTOVERS: [&str; 2] = [".tmp", "quarantine-"];

/// What is fixed about a run from its beginning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// The run.
    pub id: RunId,
    /// When it was made.
    pub created: Timestamp,
    /// The version of ralph that made it.
    pub version: String,
    /// The user's repository.
    pub repository: PathBuf,
    /// The task, as it was then. Later edits of the file do not change a run.
    pub task: String,
    /// The commit it starts from.
    pub base: ObjectId,
    /// The branch that commit was the tip of, where it was one.
    pub base_branch: Option<String>,
    /// The branch its work goes to.
    pub branch: String,
    /// The directory whose configuration it was begun with.
    #[serde(default)]
    pub project: Option<PathBuf>,
    /// Settings given on the command line, which a resume keeps: key and value.
    pub overrides: Vec<(String, String)>,
    /// The script of a scripted model, when that is what answers.
    pub script: Option<String>,
}

/// All runs of this user on this machine.
#[derive(Clone, Debug)]
pub struct Runs {
    dir: PathBuf,
}

impl Runs {
    /// The runs kept under `dir`.
    pub fn under(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Makes the directory of a new run: it is there whole or not at all.
    pub fn create(&self, facts: RunFacts) -> Result<RunDir, StateError> {
        fs::create_dir_all(&self.dir).map_err(StateError::io("create", &self.dir))?;
        let temp = tempfile::Builder::new()
            .prefix(".new-")
            .tempdir_in(&self.dir)
            .map_err(StateError::io("create a directory in", &self.dir))?;
        write_facts(temp.path(), &facts)?;
        let path = self.dir.join(facts.id.as_str());
        fs::rename(temp.path(), &path).map_err(StateError::io("create", &path))?;
        Ok(RunDir { path, facts })
    }

    /// Opens the directory of a run.
    pub fn open(&self, run: &RunId) -> Result<RunDir, StateError> {
        let path = self.dir.join(run.as_str());
        let file = path.join("run.json");
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(StateError::NoSuchRun {
                    run: run.clone(),
                    runs: self.dir.clone(),
                });
            }
            Err(error) => return Err(StateError::io("read", &file)(error)),
        };
        let facts = serde_json::from_slice(&bytes).map_err(|source| StateError::Corrupt {
            path: file,
            line: 1,
            source,
        })?;
        Ok(RunDir { path, facts })
    }

    /// All runs, oldest first. A directory that is no run is passed over.
    pub fn list(&self) -> Result<Vec<RunDir>, StateError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StateError::io("list", &self.dir)(error)),
        };
        let mut runs: Vec<RunDir> = entries
            .filter_map(Result::ok)
            .filter_map(|entry| RunId::parse(entry.file_name().to_str()?).ok())
            .filter_map(|id| self.open(&id).ok())
            .collect();
        runs.sort_by(|a, b| (a.facts.created, &a.facts.id).cmp(&(b.facts.created, &b.facts.id)));
        Ok(runs)
    }

    /// Where the runs are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// The directory of one run.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    facts: RunFacts,
}

impl RunDir {
    /// What is fixed about the run.
    #[must_use]
    pub fn facts(&self) -> &RunFacts {
        &self.facts
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The journal's file.
    #[must_use]
    pub fn journal_file(&self) -> PathBuf {
        self.path.join("journal.jsonl")
    }

    /// The host's copy of `.ralph/`.
    #[must_use]
    pub fn ralph_dir(&self) -> PathBuf {
        self.path.join("ralph")
    }

    /// The task with the runner's ticks.
    #[must_use]
    pub fn task_file(&self) -> PathBuf {
        self.path.join("ralph_task.md")
    }

    /// The events, one JSON object a line.
    #[must_use]
    pub fn events_file(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// What the sandbox asked of the network, one JSON object a line.
    #[must_use]
    pub fn network_file(&self) -> PathBuf {
        self.path.join("network.jsonl")
    }

    /// What the calls through the gateway cost, one JSON object a line.
    #[must_use]
    pub fn spending_file(&self) -> PathBuf {
        self.path.join("spending.jsonl")
    }

    /// Where packs for planting clones are kept.
    #[must_use]
    pub fn seed_dir(&self) -> PathBuf {
        self.path.join("seed")
    }

    /// The pull request on the `local` forge.
    #[must_use]
    pub fn pull_request_file(&self) -> PathBuf {
        self.path.join("pull-request.md")
    }

    /// Where people leave requests.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        Inbox::of(&self.path)
    }

    /// Takes the run over, or says who has it.
    pub fn lock(&self, owner: &RunOwner) -> Result<RunLock, StateError> {
        RunLock::take(&self.path, &self.facts.id, owner)
    }

    /// Removes what a process that was killed left half made. Only the owner may.
    pub fn clear_leftovers(&self, _owner: &RunLock) -> Result<(), StateError> {
        let entries = fs::read_dir(&self.path).map_err(StateError::io("list", &self.path))?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if LEFTOVERS.iter().any(|prefix| name.starts_with(prefix)) {
                let removed = if path.is_dir() {
                    fs::remove_dir_all(&path)
                } else {
                    fs::remove_file(&path)
                };
                removed.map_err(StateError::io("remove", &path))?;
            }
        }
        Ok(())
    }

    /// The process that works on the run now, if any.
    pub fn holder(&self) -> Result<Option<RunOwner>, StateError> {
        RunLock::holder(&self.path)
    }

    /// The journal as it stands, read without owning it.
    pub fn journal(&self) -> Result<Vec<JournalLine>, StateError> {
        Journal::read(&self.journal_file())
    }
}

fn write_facts(dir: &Path, facts: &RunFacts) -> Result<(), StateError> {
    let file = dir.join("run.json");
    let text = serde_json::to_vec_pretty(facts).map_err(|source| StateError::Corrupt {
        path: file.clone(),
        line: 0,
        source,
    })?;
    write_atomically(&file, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(id: RunId) -> RunFacts {
        RunFacts {
            id,
            created: Timestamp::UNIX_EPOCH,
            version: "0".into(),
            repository: "/repo".into(),
            task: "t".into(),
            base: ObjectId::parse(&"a".repeat(40)).unwrap(),
            base_branch: None,
            branch: "ralph/t/x".into(),
            project: None,
            overrides: vec![],
            script: None,
        }
    }

    #[test]
    fn a_run_can_be_listed_and_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::under(dir.path().join("runs"));
        assert!(runs.list().unwrap().is_empty());
        let made = runs.create(facts(RunId::random())).unwrap();
        fs::create_dir(runs.dir().join("not a run")).unwrap();
        let listed = runs.list().unwrap();
        assert_eq!(
            listed.iter().map(RunDir::facts).collect::<Vec<_>>(),
            [made.facts()]
        );
    }

    #[test]
    fn a_run_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::parse("r2345").unwrap();
        let error = Runs::under(dir.path()).open(&run).unwrap_err();
        assert!(matches!(error, StateError::NoSuchRun { .. }), "{error}");
    }
}
