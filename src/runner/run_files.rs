//! The run files, `.ralph/`: written on the host first, copied into the clone, and read back only where the agent may
//! write.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::atomic_file::{FileAccess, write_atomically};
use crate::sandbox::{DirEntry, Sandbox, SandboxError};
use crate::scm::{Checkpoint, Checkpoints, StateFile};
use crate::secret::Redactor;
use crate::state::{StateError, append, entries_of, if_exists};

use super::error::{RunError, is_sandbox_fault};
use super::hand_edits::HandEdits;

/// Files of which the agent's version wins.
const AGENT_FILES: [&str; 2] = ["notes.md", "progress.md"];
/// The file the agent may append to, but not rewrite.
const GUARDRAILS: &str = "guardrails.md";
/// The directory of the run files in the clone.
const DIR_IN_CLONE: &str = ".ralph";
/// The log that also keeps what happened in iterations that a crash undid.
const ACTIVITY: &str = "activity.log";
/// The largest agent file that is read back, in bytes.
const MAX_AGENT_FILE: u64 = 1024 * 1024;

/// The message about guardrails that the agent rewrote.
const REWRITTEN: &str = "`.ralph/guardrails.md` was rewritten: only signs that are appended are kept";

/// What was read back from the clone.
#[derive(Debug, Default)]
pub(super) struct ReadBack {
    /// Whether the agent took notes, or added signs.
    pub(super) has_notes: bool,
    /// What of it is refused, for the agent and for people.
    pub(super) refused: Option<&'static str>,
}

/// The host's copy of the run files. Names are paths below `.ralph/`.
#[derive(Debug)]
pub(super) struct RunFiles {
    dir: PathBuf,
    redactor: Redactor,
    /// Changed since the last checkpoint.
    unsaved: BTreeSet<String>,
    /// Changed since they were last copied into the clone.
    uncopied: BTreeSet<String>,
    /// Finds what a person changed by hand.
    pub(super) by_hand: HandEdits,
}

impl RunFiles {
    /// The run files kept in `dir` on the host.
    pub(super) fn new(dir: PathBuf, redactor: Redactor) -> Self {
        Self {
            by_hand: HandEdits::of(&dir),
            dir,
            redactor,
            unsaved: BTreeSet::new(),
            uncopied: BTreeSet::new(),
        }
    }

    /// The text of a file. A file that does not exist is empty: each begins that way.
    pub(super) fn read(&self, name: &str) -> Result<String, StateError> {
        let path = self.dir.join(name);
        let bytes = if_exists(fs::read(&path)).map_err(StateError::io("read", path))?;
        Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
    }

    /// Replaces a file, without known secrets.
    pub(super) fn write(&mut self, name: &str, text: &str) -> Result<(), StateError> {
        let (path, text) = (self.dir.join(name), self.redactor.redact(text));
        self.by_hand.written(name, &text)?;
        // Not synced: after a crash the checkpoint restores these files.
        write_atomically(&path, text.as_bytes(), FileAccess::Default)
            .map_err(StateError::io("write", &path))?;
        self.mark_changed(name);
        Ok(())
    }

    /// Appends to a file, without known secrets.
    pub(super) fn append(&mut self, name: &str, text: &str) -> Result<(), StateError> {
        fs::create_dir_all(&self.dir).map_err(StateError::io("create", &self.dir))?;
        let text = self.redactor.redact(text);
        self.by_hand.appended(name, &text)?;
        append(&self.dir.join(name), &text)?;
        self.mark_changed(name);
        Ok(())
    }

    /// Copies every file into the clone, which is new.
    pub(super) async fn copy_all(&mut self, sandbox: &dyn Sandbox, clone: &Path) -> Result<(), RunError> {
        self.uncopied = self.names(&self.dir)?;
        self.copy(sandbox, clone).await
    }

    /// Copies into the clone what changed on the host, and what the agent removed or replaced.
    pub(super) async fn copy(&mut self, sandbox: &dyn Sandbox, clone: &Path) -> Result<(), RunError> {
        self.remove_obstacles(sandbox, clone).await?;
        for name in std::mem::take(&mut self.uncopied) {
            let path = self.dir.join(&name);
            let bytes = fs::read(&path).map_err(StateError::io("read", &path))?;
            let target = clone.join(DIR_IN_CLONE).join(&name);
            sandbox.files().write(&target, &bytes, 0o644).await?;
        }
        Ok(())
    }

    /// Reads back what the agent wrote where it may write, and returns what there was. Its other changes are
    /// overwritten by the next [`Self::copy`].
    pub(super) async fn read_back(
        &mut self,
        sandbox: &dyn Sandbox,
        clone: &Path,
    ) -> Result<ReadBack, RunError> {
        let mut read_back = ReadBack::default();
        for name in AGENT_FILES {
            if let Some(text) = read_from_clone(sandbox, clone, name).await?
                && text != self.read(name)?
            {
                self.write(name, &text)?;
                read_back.has_notes = true;
            }
        }
        let ours = self.read(GUARDRAILS)?;
        match read_from_clone(sandbox, clone, GUARDRAILS).await? {
            Some(theirs) if theirs == ours => {}
            Some(theirs) if theirs.starts_with(&ours) => {
                self.write(GUARDRAILS, &theirs)?;
                read_back.has_notes = true;
            }
            theirs => {
                read_back.refused = theirs.map(|_| REWRITTEN);
                self.uncopied.insert(GUARDRAILS.to_owned());
            }
        }
        Ok(read_back)
    }

    /// The files that changed since the last call, for the checkpoint.
    pub(super) fn take_unsaved(&mut self) -> Result<Vec<StateFile>, StateError> {
        let read = |name: String| {
            let path = self.dir.join(&name);
            Ok(StateFile {
                path: format!("ralph/{name}"),
                bytes: fs::read(&path).map_err(StateError::io("read", path))?,
            })
        };
        std::mem::take(&mut self.unsaved).into_iter().map(read).collect()
    }

    /// Restores the files of a checkpoint. The activity log is never cut: where the host's is longer, it is newer.
    pub(super) async fn restore_from(
        &mut self,
        checkpoints: &Checkpoints,
        checkpoint: &Checkpoint,
    ) -> Result<(), RunError> {
        let saved = checkpoints.files_in(&checkpoint.commit, "ralph").await?;
        let activity = self.read(ACTIVITY)?.len();
        let mut left = self.names(&self.dir)?;
        left.remove(ACTIVITY);
        for file in saved {
            let Some(name) = file.path.strip_prefix("ralph/") else {
                continue;
            };
            left.remove(name);
            if name != ACTIVITY || file.bytes.len() > activity {
                self.write(name, &String::from_utf8_lossy(&file.bytes))?;
            }
        }
        for name in left {
            let path = self.dir.join(name);
            fs::remove_file(&path).map_err(StateError::io("remove", path))?;
        }
        self.unsaved = BTreeSet::from([ACTIVITY.to_owned()]);
        Ok(())
    }

    /// Removes from the clone what an agent, or a test that cleans up, left in place of our files, and marks those to
    /// be copied again.
    ///
    /// Files in subdirectories are not compared one by one: they are read-only for the agent, and many.
    async fn remove_obstacles(&mut self, sandbox: &dyn Sandbox, clone: &Path) -> Result<(), RunError> {
        let target = clone.join(DIR_IN_CLONE);
        let is_ours = |entry: &DirEntry| entry.name == DIR_IN_CLONE && entry.is_dir;
        if !sandbox.files().list(clone).await?.iter().any(is_ours) {
            sandbox.files().remove(&target).await?;
            self.uncopied = self.names(&self.dir)?;
            return Ok(());
        }
        let theirs = sandbox.files().list(&target).await?;
        for path in entries_of(&self.dir)? {
            // Only ralph writes here, and its names are UTF-8.
            let Some(name) = path.file_name().and_then(OsStr::to_str) else {
                continue;
            };
            let ours = fs::metadata(&path).map_err(StateError::io("read", &path))?;
            let same = |entry: &DirEntry| {
                entry.name == name
                    && entry.is_dir == ours.is_dir()
                    && (entry.is_dir || entry.size == ours.len())
            };
            if !theirs.iter().any(same) {
                sandbox.files().remove(&target.join(name)).await?;
                self.uncopied.extend(self.names(&path)?);
            }
        }
        Ok(())
    }

    fn mark_changed(&mut self, name: &str) {
        self.unsaved.insert(name.to_owned());
        self.uncopied.insert(name.to_owned());
    }

    /// The names of a file, or of all files in a directory, at any depth.
    fn names(&self, path: &Path) -> Result<BTreeSet<String>, StateError> {
        if path.is_file() {
            let name = path.strip_prefix(&self.dir).ok().and_then(Path::to_str);
            return Ok(name.map(str::to_owned).into_iter().collect());
        }
        let mut names = BTreeSet::new();
        for entry in entries_of(path)? {
            names.append(&mut self.names(&entry)?);
        }
        Ok(names)
    }
}

/// A file as the agent left it. `None` when it is missing, too large or not a file: then ours is copied again.
async fn read_from_clone(
    sandbox: &dyn Sandbox,
    clone: &Path,
    name: &str,
) -> Result<Option<String>, SandboxError> {
    let path = clone.join(DIR_IN_CLONE).join(name);
    match sandbox.files().read(&path, MAX_AGENT_FILE).await {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if is_sandbox_fault(error.kind()) => Err(error),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::runner::tests::TestRun;
    use crate::runner::workplace::Workplace;

    async fn agent_writes(workplace: &Workplace<'_>, name: &str, text: &str) {
        let path = workplace.clone_dir().join(DIR_IN_CLONE).join(name);
        let written = workplace
            .sandbox()
            .files()
            .write(&path, text.as_bytes(), 0o644)
            .await;
        written.unwrap();
    }

    async fn in_clone(workplace: &Workplace<'_>, name: &str) -> String {
        let read = read_from_clone(workplace.sandbox(), &workplace.clone_dir(), name).await;
        read.unwrap().unwrap()
    }

    #[rstest]
    #[case::notes("notes.md", "rewritten", "rewritten")]
    #[case::progress("progress.md", "", "")]
    #[case::appended_guardrails("guardrails.md", "ours\nmore", "ours\nmore")]
    #[case::rewritten_guardrails("guardrails.md", "theirs", "ours\n")]
    #[case::the_errors("errors.log", "none at all", "ours\n")]
    #[tokio::test]
    async fn the_agent_writes_only_where_it_may(
        #[case] name: &str,
        #[case] theirs: &str,
        #[case] kept: &str,
    ) {
        let run = TestRun::new().await;
        let (mut progress, workplace) = (run.progress().await, run.workplace().await);
        for file in [GUARDRAILS, name] {
            progress.files.write(file, "ours\n").unwrap();
        }
        workplace.reset_clone(&mut progress).await.unwrap();
        agent_writes(&workplace, name, theirs).await;
        let (files, clone) = (&mut progress.files, workplace.clone_dir());
        files.read_back(workplace.sandbox(), &clone).await.unwrap();
        files.copy(workplace.sandbox(), &clone).await.unwrap();
        assert_eq!(files.read(name).unwrap(), kept);
        assert_eq!(in_clone(&workplace, name).await, kept);
    }

    #[tokio::test]
    async fn what_the_agent_removed_is_copied_again() {
        let run = TestRun::new().await;
        let (mut progress, workplace) = (run.progress().await, run.workplace().await);
        progress
            .files
            .write("iterations/1/prompt.md", "a prompt")
            .unwrap();
        progress.files.write("notes.md", "a note").unwrap();
        workplace.reset_clone(&mut progress).await.unwrap();
        let clone = workplace.clone_dir();
        for removed in [".ralph/iterations", ".ralph"] {
            workplace
                .sandbox()
                .files()
                .remove(&clone.join(removed))
                .await
                .unwrap();
            progress.files.copy(workplace.sandbox(), &clone).await.unwrap();
            assert_eq!(in_clone(&workplace, "iterations/1/prompt.md").await, "a prompt");
            assert_eq!(in_clone(&workplace, "notes.md").await, "a note");
        }
    }
}
