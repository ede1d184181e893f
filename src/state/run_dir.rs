//! The directory of one run on the host, and the directory of all of them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{ObjectId, RunId};
use crate::text::error_chain;

use super::lock::{lock_file, read_owner};
use super::{
    Inbox, Intervention, Journal, JournalEntry, JournalLine, RunLock, RunOwner, StateError, entries_of,
    if_exists, interventions, write_atomically,
};

/// The prefixes of temporary files and directories.
const TEMPORARY: [&str; 2] = [".tmp", "quarantine-"];

/// The prefix of a run's directory that is being removed.
const REMOVED: &str = ".removed-";

/// The newest format of a run's files that this ralph reads and writes. 0.1.0 wrote the first one without naming it.
///
/// A change that an older ralph cannot read has the next number. `format` in `run.json`, and the journal lines `opened` with
/// theirs, stay as they are in every format.
pub const RUN_FORMAT: u32 = 1;

/// The format of files that do not name one.
pub(super) fn first_format() -> u32 {
    1
}

/// Refuses files of a newer format.
pub(super) fn check_format(path: &Path, found: u32) -> Result<(), StateError> {
    if found > RUN_FORMAT {
        return Err(StateError::NewerFormat {
            path: path.to_owned(),
            found,
            known: RUN_FORMAT,
        });
    }
    Ok(())
}

/// What is fixed when a run is created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// The format of `run.json`.
    #[serde(default = "first_format")]
    pub format: u32,
    /// The id of the run.
    pub id: RunId,
    /// When it was created.
    pub created: Timestamp,
    /// The version of ralph that created it.
    pub version: String,
    /// The git directory of the user's repository.
    pub repository: PathBuf,
    /// The text of the task when the run was created. Later edits of the file do not change the run.
    pub task: String,
    /// The commit it starts from.
    pub base: ObjectId,
    /// The branch whose tip that commit was; `None` for a detached HEAD.
    pub base_branch: Option<String>,
    /// The branch that gets the work.
    pub branch: String,
    /// The directory whose configuration it was created with.
    #[serde(default)]
    pub project: Option<PathBuf>,
    /// Settings given on the command line, which a resume keeps: key and value.
    pub overrides: Vec<(String, String)>,
    /// The script of the scripted model, if that is the model.
    pub script: Option<String>,
    /// The issue that it works on, if it is not a task in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<u64>,
}

impl RunFacts {
    /// Parses `run.json`. A newer format is refused by name, whatever else changed in it.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, StateError> {
        #[derive(Deserialize)]
        struct Format {
            #[serde(default = "first_format")]
            format: u32,
        }
        let Format { format } = serde_json::from_slice(bytes).map_err(StateError::corrupt(path))?;
        check_format(path, format)?;
        serde_json::from_slice(bytes).map_err(StateError::corrupt(path))
    }

    /// The text of the task after these lines of the journal: that of the newest edit.
    #[must_use]
    pub fn task_after<'a>(&'a self, lines: &'a [JournalLine]) -> &'a str {
        interventions(lines)
            .rev()
            .find_map(edited_task)
            .unwrap_or(&self.task)
    }
}

fn edited_task(intervention: &Intervention) -> Option<&str> {
    match intervention {
        Intervention::Edit { task } => Some(task),
        _ => None,
    }
}

/// All runs of this user on this host.
#[derive(Clone, Debug)]
pub struct Runs {
    dir: PathBuf,
}

impl Runs {
    /// The runs kept under `dir`.
    pub fn under(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Creates the directory of a new run, atomically.
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
        let bytes = if_exists(fs::read(&file)).map_err(StateError::io("read", &file))?;
        let bytes = bytes.ok_or_else(|| StateError::NoSuchRun {
            run: run.clone(),
            runs: self.dir.clone(),
        })?;
        let facts = RunFacts::parse(&file, &bytes)?;
        Ok(RunDir { path, facts })
    }

    /// All runs, oldest first. A run that cannot be read is skipped with a warning in the log.
    pub fn list(&self) -> Result<Vec<RunDir>, StateError> {
        let mut runs = Vec::new();
        for path in entries_of(&self.dir)? {
            let name = path.file_name().and_then(OsStr::to_str);
            let Some(id) = name.and_then(|name| RunId::parse(name).ok()) else {
                continue;
            };
            match self.open(&id) {
                Ok(run) => runs.push(run),
                // Another process removed it meanwhile, or the sandbox of a trial has this directory.
                Err(StateError::NoSuchRun { .. }) => {}
                // One unreadable run must not hide the others.
                Err(error) => {
                    tracing::warn!(run = %id, error = %error_chain(&error), "skipped a run that cannot be read");
                }
            }
        }
        runs.sort_by(|a, b| (a.facts.created, &a.facts.id).cmp(&(b.facts.created, &b.facts.id)));
        Ok(runs)
    }

    /// Removes the directory of a run, which its owner has locked. A crash leaves a hidden directory, which the next removal
    /// clears.
    pub fn remove(&self, run: &RunDir, _owner: &RunLock) -> Result<(), StateError> {
        self.remove_dir(&run.path, &run.facts.id)
    }

    /// Removes the directory of a run whose `run.json` cannot be parsed, and returns why it cannot. `None` if there is no such
    /// run.
    pub(crate) fn remove_corrupt(
        &self,
        run: &RunId,
        owner: &RunOwner,
    ) -> Result<Option<StateError>, StateError> {
        let Err(corrupt @ StateError::Corrupt { .. }) = self.open(run) else {
            return Ok(None);
        };
        let path = self.dir.join(run.as_str());
        let _lock = RunLock::take(&path, run, owner)?;
        self.remove_dir(&path, run)?;
        Ok(Some(corrupt))
    }

    fn remove_dir(&self, path: &Path, run: &RunId) -> Result<(), StateError> {
        let hidden = self.dir.join(format!("{REMOVED}{run}"));
        fs::rename(path, &hidden).map_err(StateError::io("rename", path))?;
        for path in entries_of(&self.dir)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(REMOVED) {
                // Another removal may clear it at the same time.
                if_exists(fs::remove_dir_all(&path)).map_err(StateError::io("remove", &path))?;
            }
        }
        Ok(())
    }

    /// The directory of all runs.
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

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that the owner of the run has locked.
    pub(crate) fn lock_file(&self) -> PathBuf {
        lock_file(&self.path)
    }

    /// The file of the journal.
    #[must_use]
    pub fn journal_file(&self) -> PathBuf {
        self.path.join("journal.jsonl")
    }

    /// The host's copy of `.ralph/`.
    #[must_use]
    pub fn ralph_dir(&self) -> PathBuf {
        self.path.join("ralph")
    }

    /// The task with the ticks of the runner.
    #[must_use]
    pub fn task_file(&self) -> PathBuf {
        self.path.join("ralph_task.md")
    }

    /// The events, one JSON object per line.
    #[must_use]
    pub fn events_file(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// What became of notifications, one JSON object per line.
    #[must_use]
    pub fn notifications_file(&self) -> PathBuf {
        self.path.join("notifications.jsonl")
    }

    /// The audit log of the network, one JSON object per line.
    #[must_use]
    pub fn network_file(&self) -> PathBuf {
        self.path.join("network.jsonl")
    }

    /// The usage of calls through the gateway, one JSON object per line.
    #[must_use]
    pub fn spending_file(&self) -> PathBuf {
        self.path.join("spending.jsonl")
    }

    /// The directory of the packs that clones are created from.
    #[must_use]
    pub fn seed_dir(&self) -> PathBuf {
        self.path.join("seed")
    }

    /// The pull request of the `local` forge.
    #[must_use]
    pub fn pull_request_file(&self) -> PathBuf {
        self.path.join("pull-request.md")
    }

    /// The interventions of people.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        Inbox::new(&self.path)
    }

    /// The text of the task as the next iteration will have it: with the newest edit, which may still wait.
    pub fn next_task(&self) -> Result<String, StateError> {
        self.next_task_by(None)
    }

    /// The same, by the journal if it was read already: that of a long run takes a while to read.
    pub(crate) fn next_task_by(&self, journal: Option<&[JournalLine]>) -> Result<String, StateError> {
        let pending = self.inbox().pending()?;
        let waiting = pending
            .iter()
            .rev()
            .find_map(|request| edited_task(&request.intervention));
        Ok(match waiting {
            Some(text) => text.to_owned(),
            None => match journal {
                Some(lines) => self.facts.task_after(lines).to_owned(),
                None => self.facts.task_after(&self.journal()?).to_owned(),
            },
        })
    }

    /// Takes the lock of the run. The error names the process that holds it.
    pub fn lock(&self, owner: &RunOwner) -> Result<RunLock, StateError> {
        RunLock::take(&self.path, &self.facts.id, owner)
    }

    /// Removes the temporary files of a process that was killed. Only the owner may.
    pub fn clear_leftovers(&self, _owner: &RunLock) -> Result<(), StateError> {
        // A checkpoint restores the run files, but there may be none yet.
        let run_files = entries_of(&self.ralph_dir())?;
        for path in entries_of(&self.path)?.into_iter().chain(run_files) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if TEMPORARY.iter().any(|prefix| name.starts_with(prefix)) {
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

    /// The process that works on the run now.
    pub fn holder(&self) -> Result<Option<RunOwner>, StateError> {
        RunLock::holder(&self.path)
    }

    /// The process that worked on the run last, or does now.
    pub fn last_owner(&self) -> Result<Option<RunOwner>, StateError> {
        read_owner(&self.path)
    }

    /// Writes to the journal that an error ended the process before it worked on the run, where `status` finds it. A run that
    /// ended by rule keeps that outcome.
    pub fn record_broken(&self, owner: &RunOwner, at: Timestamp, reason: String) -> Result<(), StateError> {
        let _lock = self.lock(owner)?;
        let (mut journal, _) = Journal::open(&self.journal_file())?;
        let newest = journal.lines().last().map(|line| &line.entry);
        if matches!(newest, Some(JournalEntry::Ended { .. })) {
            return Ok(());
        }
        journal.append(at, JournalEntry::Broken { reason })
    }

    /// The journal, read without the lock.
    pub fn journal(&self) -> Result<Vec<JournalLine>, StateError> {
        Journal::read(&self.journal_file())
    }
}

fn write_facts(dir: &Path, facts: &RunFacts) -> Result<(), StateError> {
    let file = dir.join("run.json");
    let text = serde_json::to_vec_pretty(facts).map_err(StateError::encode(&file))?;
    write_atomically(&file, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(id: RunId) -> RunFacts {
        RunFacts {
            format: RUN_FORMAT,
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
            issue: None,
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
    fn temporary_files_of_a_killed_process_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let run = Runs::under(dir.path()).create(facts(RunId::random())).unwrap();
        fs::create_dir_all(run.ralph_dir()).unwrap();
        let left = [run.path.join(".tmpAbc123"), run.ralph_dir().join(".tmpDef456")];
        let kept = run.ralph_dir().join("notes.md");
        for path in left.iter().chain([&kept]) {
            fs::write(path, "").unwrap();
        }
        let owner = RunLock::take(&run.path, &run.facts().id, &RunOwner::this_process("here")).unwrap();
        run.clear_leftovers(&owner).unwrap();
        assert!(left.iter().all(|path| !path.exists()) && kept.exists());
    }

    /// A run as 0.1.0 left it.
    fn old_run(dir: &Path) -> RunDir {
        let path = dir.join("rbpnqzpj6");
        fs::create_dir(&path).unwrap();
        let facts = include_str!("../../tests/fixtures/state/0.1.0/run.json");
        fs::write(path.join("run.json"), facts).unwrap();
        let journal = include_str!("../../tests/fixtures/state/0.1.0/journal.jsonl");
        fs::write(path.join("journal.jsonl"), journal).unwrap();
        Runs::under(dir)
            .open(&RunId::parse("rbpnqzpj6").unwrap())
            .unwrap()
    }

    #[test]
    fn a_run_of_0_1_0_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let run = old_run(dir.path());
        assert_eq!((run.facts.format, &*run.facts.version), (1, "0.1.0"));
        let lines = run.journal().unwrap();
        let is_recorded = |line: &&JournalLine| matches!(line.entry, JournalEntry::Recorded(_));
        assert_eq!(lines.iter().filter(is_recorded).count(), 3);
        let newest = &lines.last().unwrap().entry;
        assert!(matches!(newest, JournalEntry::Ended { .. }), "{newest:?}");
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let run = old_run(dir.path());
        let newer = "{\"seq\":18,\"at\":\"2030-01-01T00:00:00Z\",\"entry\":\"opened\",\"owner\":\"a\",\"format\":99}\n\
                     {\"seq\":19,\"at\":\"2030-01-01T00:00:00Z\",\"entry\":\"teleported\"}\n";
        let journal = fs::read_to_string(run.journal_file()).unwrap();
        fs::write(run.journal_file(), journal + newer).unwrap();
        let error = run.journal().unwrap_err().to_string();
        let path = run.journal_file().display().to_string();
        let expected = format!("`{path}` has format 99; this ralph knows formats up to {RUN_FORMAT}");
        assert_eq!(error, expected);

        let file = run.path.join("run.json");
        fs::write(&file, "{\"format\":99,\"id\":{\"new\":true}}").unwrap();
        let error = Runs::under(dir.path()).open(&run.facts.id).unwrap_err();
        let expected = format!(
            "`{}` has format 99; this ralph knows formats up to {RUN_FORMAT}",
            file.display()
        );
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_run_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::parse("r2345").unwrap();
        let error = Runs::under(dir.path()).open(&run).unwrap_err();
        assert!(matches!(error, StateError::NoSuchRun { .. }), "{error}");
    }
}
