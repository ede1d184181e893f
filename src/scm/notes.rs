//! Git notes: text that belongs to a commit without changing it.

use std::time::Duration;

use jiff::Timestamp;

use super::error::ScmError;
use super::git::{one_id, output};
use super::import::{CommitSpec, FastImport, ImportRef};
use super::objects;
use super::repository::Repository;
use crate::exec::ExitStatus;
use crate::id::ObjectId;

/// How often adding to a note is tried while other processes write notes.
const TRIES: u32 = 100;
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

impl Repository {
    /// The note of a commit. `notes_ref` is a full name below `refs/notes/`.
    pub async fn note(&self, notes_ref: &str, commit: &ObjectId) -> Result<Option<Vec<u8>>, ScmError> {
        let command =
            self.git
                .command("notes")
                .args([&format!("--ref={notes_ref}"), "list", commit.as_str()]);
        let exit = self.git.exit(&command).await?;
        // Git exits with 1 if the commit has no note.
        if exit.status == ExitStatus::Code(1) {
            return Ok(None);
        }
        let id = one_id(&output(&command, &exit)?)?;
        let mut found = objects::read(&self.git, &[id.to_string()]).await?;
        Ok(found.pop().flatten().map(|object| object.bytes))
    }

    /// Adds a line to the note of a commit, unless the note has it. The ref moves by compare-and-swap, so that notes which
    /// other processes add at the same time are kept.
    pub async fn add_note_line(
        &self,
        notes_ref: &str,
        commit: &ObjectId,
        line: &str,
        at: Timestamp,
    ) -> Result<(), ScmError> {
        let mut tries = 0;
        loop {
            let expected = self.read_ref(notes_ref).await?;
            let mut note = self.note(notes_ref, commit).await?.unwrap_or_default();
            if note
                .split(|byte| *byte == b'\n')
                .any(|one| one == line.as_bytes())
            {
                return Ok(());
            }
            if !note.is_empty() && !note.ends_with(b"\n") {
                note.push(b'\n');
            }
            note.extend_from_slice(line.as_bytes());
            note.push(b'\n');
            let new = self.commit_note(expected.as_ref(), commit, &note, at).await?;
            let Err(error) = self.update_ref(notes_ref, &new, expected.as_ref()).await else {
                return Ok(());
            };
            tries += 1;
            // `Git`: another process holds the lock of the ref.
            if tries == TRIES || !matches!(error, ScmError::RefMoved { .. } | ScmError::Git { .. }) {
                return Err(error);
            }
            tokio::time::sleep(LONGEST_PAUSE.mul_f64(fastrand::f64())).await;
        }
    }

    /// Creates a commit of notes with this note, on top of another.
    pub(super) async fn commit_note(
        &self,
        from: Option<&ObjectId>,
        commit: &ObjectId,
        note: &[u8],
        at: Timestamp,
    ) -> Result<ObjectId, ScmError> {
        let spec = CommitSpec {
            committer: "ralph <ralph@localhost>",
            date: Some(at.as_second()),
            message: "Notes added by ralph",
            from,
            merge: None,
        };
        let mut import = FastImport::new(ImportRef::Discard("refs/notes/ralph-saving"), &spec);
        import.note(commit, note);
        self.import(import).await
    }
}
