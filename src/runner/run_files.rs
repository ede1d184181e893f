//! The run files, `.ralph/`: written on the host first, copied into the clone, and read back only where the agent may
//! write.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::atomic_file::{FileAccess, write_atomically};
use crate::sandbox::{DirEntry, Sandbox, SandboxError};
use crate::scm::{Checkpoint, Checkpoints};
use crate::secret::Redactor;
use crate::state::StateError;

use super::error::{RunError, is_sandbox_fault};

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

/// The host's copy of the run files. Names are paths below `.ralph/`.
#[derive(Debug)]
pub(super) struct RunFiles {
    dir: PathBuf,
    redactor: Redactor,
    /// Changed since the last checkpoint.
    unsaved: BTreeSet<String>,
    /// Changed since they were last copied into the clone.
    uncopied: BTreeSet<String>,
}

impl RunFiles {
    /// The run files kept in `dir` on the host.
    pub(super) fn new(dir: PathBuf, redactor: Redactor) -> Self {
        Self {
            dir,
            redactor,
            unsaved: BTreeSet::new(),
            uncopied: BTreeSet::new(),
        }
    }

    /// The text of a file. A file that does not exist is empty: each begins that way.
    pub(super) fn read(&self, name: &str) -> Result<String, StateError> {
        let path = self.dir.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(StateError::io("read", path)(error)),
        }
    }

    /// Replaces a file, without known secrets.
    pub(super) fn write(&mut self, name: &str, text: &str) -> Result<(), StateError> {
        let path = self.dir.join(name);
        // Not synced: after a crash the checkpoint restores these files.
        write_atomically(&path, self.redactor.redact(text).as_bytes(), FileAccess::Default)
            .map_err(StateError::io("write", &path))?;
        self.mark_changed(name);
        Ok(())
    }

    /// Appends to a file, without known secrets.
    pub(super) fn append(&mut self, name: &str, text: &str) -> Result<(), StateError> {
        let path = self.dir.join(name);
        fs::create_dir_all(&self.dir).map_err(StateError::io("create", &self.dir))?;
        let open = fs::OpenOptions::new().append(true).create(true).open(&path);
        let mut file = open.map_err(StateError::io("open", &path))?;
        file.write_all(self.redactor.redact(text).as_bytes())
            .map_err(StateError::io("append to", &path))?;
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

    /// Reads back what the agent wrote where it may write. Its other changes are overwritten by the next [`Self::copy`].
    pub(super) async fn read_back(&mut self, sandbox: &dyn Sandbox, clone: &Path) -> Result<(), RunError> {
        for name in AGENT_FILES {
            if let Some(text) = read_from_clone(sandbox, clone, name).await?
                && text != self.read(name)?
            {
                self.write(name, &text)?;
            }
        }
        let ours = self.read(GUARDRAILS)?;
        match read_from_clone(sandbox, clone, GUARDRAILS).await? {
            Some(theirs) if theirs == ours => {}
            Some(theirs) if theirs.starts_with(&ours) => self.write(GUARDRAILS, &theirs)?,
            Some(_) | None => {
                self.uncopied.insert(GUARDRAILS.to_owned());
            }
        }
        Ok(())
    }

    /// The names and contents of the files that changed since the last call, for the checkpoint.
    pub(super) fn take_unsaved(&mut self) -> Result<Vec<(String, Vec<u8>)>, StateError> {
        let read = |name: String| {
            let path = self.dir.join(&name);
            let bytes = fs::read(&path).map_err(StateError::io("read", path))?;
            Ok((name, bytes))
        };
        std::mem::take(&mut self.unsaved).into_iter().map(read).collect()
    }

    /// Restores the files of a checkpoint.
    pub(super) async fn restore_from(
        &mut self,
        checkpoints: &Checkpoints,
        checkpoint: &Checkpoint,
    ) -> Result<(), RunError> {
        let saved = checkpoints.files_in(&checkpoint.commit, "ralph").await?;
        let files = saved.into_iter().filter_map(|file| {
            let name = file.path.strip_prefix("ralph/")?.to_owned();
            Some((name, file.bytes))
        });
        Ok(self.restore(files.collect())?)
    }

    /// Replaces all files. The activity log is never cut: where the host's is longer, it is newer.
    fn restore(&mut self, files: Vec<(String, Vec<u8>)>) -> Result<(), StateError> {
        let activity = self.read(ACTIVITY)?.len();
        let saved: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        for name in self.names(&self.dir)? {
            if name != ACTIVITY && !saved.contains(name.as_str()) {
                let path = self.dir.join(name);
                fs::remove_file(&path).map_err(StateError::io("remove", path))?;
            }
        }
        for (name, bytes) in files {
            if name != ACTIVITY || bytes.len() > activity {
                self.write(&name, &String::from_utf8_lossy(&bytes))?;
            }
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
        for (name, size) in self.top_level()? {
            let same = |entry: &DirEntry| match size {
                Some(size) => !entry.is_dir && entry.size == size,
                None => entry.is_dir,
            };
            if theirs.iter().any(|entry| entry.name == name && same(entry)) {
                continue;
            }
            sandbox.files().remove(&target.join(&name)).await?;
            match size {
                Some(_) => self.uncopied.extend([name]),
                None => self.uncopied.extend(self.names(&self.dir.join(&name))?),
            }
        }
        Ok(())
    }

    /// The entries directly below the host directory: the name, and the size of a file or `None` for a directory.
    fn top_level(&self) -> Result<Vec<(String, Option<u64>)>, StateError> {
        let error = |error| StateError::io("list", &self.dir)(error);
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(error)? {
            let entry = entry.map_err(error)?;
            let metadata = entry.metadata().map_err(error)?;
            // Only ralph writes here, and its names are UTF-8.
            if let Ok(name) = entry.file_name().into_string() {
                entries.push((name, metadata.is_file().then_some(metadata.len())));
            }
        }
        Ok(entries)
    }

    fn mark_changed(&mut self, name: &str) {
        self.unsaved.insert(name.to_owned());
        self.uncopied.insert(name.to_owned());
    }

    /// The names of all files in `dir`, at any depth.
    fn names(&self, dir: &Path) -> Result<BTreeSet<String>, StateError> {
        let mut names = BTreeSet::new();
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
            Err(error) => return Err(StateError::io("list", dir)(error)),
        };
        for entry in entries {
            let path = entry.map_err(StateError::io("list", dir))?.path();
            if path.is_dir() {
                names.extend(self.names(&path)?);
            } else if let Some(name) = path.strip_prefix(&self.dir).ok().and_then(Path::to_str) {
                names.insert(name.to_owned());
            }
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
