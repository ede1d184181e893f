//! The host's copy of `.ralph/`: written here first, shown to the agent, taken over from it only where it may write.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::atomic_file::{FileAccess, write_atomically};
use crate::sandbox::{DirEntry, Sandbox, SandboxError};
use crate::secret::Redactor;
use crate::state::StateError;

/// Files of which the agent's version is taken over.
const AGENTS_OWN: [&str; 2] = ["notes.md", "progress.md"];
/// The file the agent may add to, but not rewrite.
const GUARDRAILS: &str = "guardrails.md";
/// Where in the clone the agent finds it.
const SHOWN_AS: &str = ".ralph";
/// What happened, also in iterations that a crash undid.
const ACTIVITY: &str = "activity.log";
/// How much of a file the agent wrote is taken over.
const LONGEST: u64 = 1024 * 1024;

/// The files of `.ralph/`, by their paths below it.
#[derive(Debug)]
pub(super) struct Notebook {
    dir: PathBuf,
    redactor: Redactor,
    unsaved: BTreeSet<String>,
    unshown: BTreeSet<String>,
}

impl Notebook {
    /// The notebook kept in `dir`.
    #[must_use]
    pub(super) fn open(dir: PathBuf, redactor: Redactor) -> Self {
        Self {
            dir,
            redactor,
            unsaved: BTreeSet::new(),
            unshown: BTreeSet::new(),
        }
    }

    /// The text of a file; empty when it is not there.
    pub(super) fn read(&self, name: &str) -> Result<String, StateError> {
        let path = self.dir.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(StateError::io("read", path)(error)),
        }
    }

    /// Replaces a file. Known secrets do not get into it.
    pub(super) fn write(&mut self, name: &str, text: &str) -> Result<(), StateError> {
        let path = self.dir.join(name);
        write_atomically(&path, self.redactor.redact(text).as_bytes(), FileAccess::Default)
            .map_err(StateError::io("write", &path))?;
        self.touched(name);
        Ok(())
    }

    /// Adds to the end of a file. Known secrets do not get into it.
    pub(super) fn append(&mut self, name: &str, text: &str) -> Result<(), StateError> {
        use std::io::Write;
        let path = self.dir.join(name);
        fs::create_dir_all(&self.dir).map_err(StateError::io("create", &self.dir))?;
        let open = fs::OpenOptions::new().append(true).create(true).open(&path);
        let mut file = open.map_err(StateError::io("open", &path))?;
        file.write_all(self.redactor.redact(text).as_bytes())
            .map_err(StateError::io("append to", &path))?;
        self.touched(name);
        Ok(())
    }

    /// Marks every file as new, so that a clone made afresh is shown all of them.
    pub(super) fn show_all(&mut self) -> Result<(), StateError> {
        self.unshown = self.names(&self.dir.clone())?;
        Ok(())
    }

    /// Copies into the clone what is new, and what is no longer there as it was.
    pub(super) async fn show(&mut self, sandbox: &dyn Sandbox, clone: &Path) -> Result<(), NotebookError> {
        self.clear_the_way(sandbox, clone).await?;
        for name in std::mem::take(&mut self.unshown) {
            let Ok(bytes) = fs::read(self.dir.join(&name)) else {
                continue;
            };
            sandbox
                .files()
                .write(&clone.join(SHOWN_AS).join(&name), &bytes, 0o644)
                .await?;
        }
        Ok(())
    }

    /// Takes over what the agent wrote where it may write. Everything else it will find as it was.
    pub(super) async fn take_over(
        &mut self,
        sandbox: &dyn Sandbox,
        clone: &Path,
    ) -> Result<(), NotebookError> {
        for name in AGENTS_OWN {
            if let Some(text) = read_lossy(sandbox, clone, name).await
                && text != self.read(name)?
            {
                self.write(name, &text)?;
            }
        }
        let ours = self.read(GUARDRAILS)?;
        match read_lossy(sandbox, clone, GUARDRAILS).await {
            Some(theirs) if theirs == ours => {}
            Some(theirs) if theirs.starts_with(&ours) => self.write(GUARDRAILS, &theirs)?,
            _ => {
                self.unshown.insert(GUARDRAILS.to_owned());
            }
        }
        Ok(())
    }

    /// The files that changed since this was last called, for the checkpoint.
    pub(super) fn take_unsaved(&mut self) -> Result<Vec<(String, Vec<u8>)>, StateError> {
        let read = |name: String| {
            let path = self.dir.join(&name);
            let bytes = fs::read(&path).map_err(StateError::io("read", path))?;
            Ok((name, bytes))
        };
        std::mem::take(&mut self.unsaved).into_iter().map(read).collect()
    }

    /// Puts everything back to what a checkpoint holds. The activity log alone is never cut: where ours is longer, it
    /// tells of what happened since.
    pub(super) fn restore(&mut self, files: Vec<(String, Vec<u8>)>) -> Result<(), StateError> {
        let activity = self.read(ACTIVITY)?.len();
        let of_the_checkpoint: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        for name in self.names(&self.dir.clone())? {
            if name != ACTIVITY && !of_the_checkpoint.contains(name.as_str()) {
                let path = self.dir.join(name);
                fs::remove_file(&path).map_err(StateError::io("remove", path))?;
            }
        }
        for (name, bytes) in files {
            if name != ACTIVITY || bytes.len() > activity {
                self.write(&name, &String::from_utf8_lossy(&bytes))?;
            }
        }
        self.unsaved.clear();
        self.unsaved.insert(ACTIVITY.to_owned());
        Ok(())
    }

    /// Removes what an agent, or a test that cleans up, left in place of our files, and marks those to be shown again.
    ///
    /// Files in directories of ours are not looked at one by one: they are for reading only, and many.
    async fn clear_the_way(&mut self, sandbox: &dyn Sandbox, clone: &Path) -> Result<(), NotebookError> {
        let place = clone.join(SHOWN_AS);
        let is_ours = |entry: &DirEntry| entry.name == SHOWN_AS && entry.is_dir;
        if !sandbox.files().list(clone).await?.iter().any(is_ours) {
            sandbox.files().remove(&place).await?;
            return Ok(self.show_all()?);
        }
        let theirs = sandbox.files().list(&place).await?;
        for ours in self.top()? {
            let same = |entry: &DirEntry| match ours.length {
                Some(length) => !entry.is_dir && entry.size == length,
                None => entry.is_dir,
            };
            if !theirs.iter().any(|entry| entry.name == ours.name && same(entry)) {
                sandbox.files().remove(&place.join(&ours.name)).await?;
                let again = match ours.length {
                    Some(_) => BTreeSet::from([ours.name]),
                    None => self.names(&self.dir.join(&ours.name))?,
                };
                self.unshown.extend(again);
            }
        }
        Ok(())
    }

    /// What stands directly below our directory.
    fn top(&self) -> Result<Vec<Ours>, StateError> {
        let entries = fs::read_dir(&self.dir).map_err(StateError::io("list", &self.dir))?;
        let ours = |entry: fs::DirEntry| {
            let found = entry.metadata().ok()?;
            Some(Ours {
                name: entry.file_name().into_string().ok()?,
                length: found.is_file().then_some(found.len()),
            })
        };
        Ok(entries.filter_map(Result::ok).filter_map(ours).collect())
    }

    fn touched(&mut self, name: &str) {
        self.unsaved.insert(name.to_owned());
        self.unshown.insert(name.to_owned());
    }

    fn names(&self, dir: &Path) -> Result<BTreeSet<String>, StateError> {
        let mut names = BTreeSet::new();
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(names),
            Err(error) => return Err(StateError::io("list", dir)(error)),
        };
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            if path.is_dir() {
                names.extend(self.names(&path)?);
            } else if let Some(name) = path.strip_prefix(&self.dir).ok().and_then(Path::to_str) {
                names.insert(name.to_owned());
            }
        }
        Ok(names)
    }
}

/// A file or a directory of ours.
struct Ours {
    name: String,
    /// How long a file is; `None` for a directory.
    length: Option<u64>,
}

/// What can go wrong with the notebook.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotebookError {
    /// On the host.
    #[error(transparent)]
    State(#[from] StateError),
    /// In the sandbox.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

/// A file as the agent left it; `None` when it is gone, too long or no file: then ours is shown again.
async fn read_lossy(sandbox: &dyn Sandbox, clone: &Path, name: &str) -> Option<String> {
    let bytes = sandbox
        .files()
        .read(&clone.join(SHOWN_AS).join(name), LONGEST)
        .await
        .ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
