//! Adds the note of one commit to the notes of a remote repository.

use jiff::Timestamp;

use super::error::ScmError;
use super::objects;
use super::push::Remote;
use super::repository::Repository;
use crate::id::ObjectId;

/// How many levels of directories notes may have. Git adds one for every factor of 256 or so.
const MAX_FANOUT: usize = 6;

/// A commit of notes for a remote, on top of those that the remote has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotePush {
    /// The commit.
    pub commit: ObjectId,
    /// Where the remote's ref is now. `None` if it does not exist.
    pub expected: Option<ObjectId>,
}

impl Repository {
    /// Adds the lines of a commit's note to the notes of a remote, as a new commit that [`Repository::push_ref`] can push.
    /// Notes of other commits and lines of others stay. `None` if the remote has all of them.
    pub async fn prepare_note(
        &self,
        remote: &Remote,
        notes_ref: &str,
        commit: &ObjectId,
        at: Timestamp,
    ) -> Result<Option<NotePush>, ScmError> {
        let Some(ours) = self.note(notes_ref, commit).await? else {
            return Ok(None);
        };
        let expected = self.remote_ref(remote, notes_ref).await?;
        let mut theirs = Vec::new();
        if let Some(tip) = &expected {
            self.fetch_objects(remote, notes_ref).await?;
            theirs = self.note_at(tip, commit).await?.unwrap_or_default();
        }
        let Some(note) = with_lines(theirs, &ours) else {
            return Ok(None);
        };
        let commit = self.commit_note(expected.as_ref(), commit, &note, at).await?;
        Ok(Some(NotePush { commit, expected }))
    }

    /// The note of a commit in a commit of notes.
    async fn note_at(&self, notes: &ObjectId, commit: &ObjectId) -> Result<Option<Vec<u8>>, ScmError> {
        let names: Vec<String> = (0..=MAX_FANOUT)
            .map(|levels| format!("{notes}:{}", note_path(commit.as_str(), levels)))
            .collect();
        let found = objects::read(&self.git, &names).await?;
        Ok(found.into_iter().flatten().next().map(|object| object.bytes))
    }
}

/// The path of a commit's note: each level is a directory that is named after two digits.
fn note_path(commit: &str, levels: usize) -> String {
    let (dirs, rest) = commit.split_at(levels * 2);
    let digits: Vec<char> = dirs.chars().collect();
    let dirs = digits.chunks(2).map(|pair| pair.iter().collect::<String>() + "/");
    dirs.collect::<String>() + rest
}

/// A note with these lines added. `None` if it has all of them.
fn with_lines(mut note: Vec<u8>, lines: &[u8]) -> Option<Vec<u8>> {
    let is_line = |line: &&[u8]| !line.is_empty();
    let known: Vec<Vec<u8>> = note.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let lines = lines.split(|byte| *byte == b'\n').filter(is_line);
    let missing: Vec<&[u8]> = lines
        .filter(|line| known.iter().all(|known| known != line))
        .collect();
    if missing.is_empty() {
        return None;
    }
    if !note.is_empty() && !note.ends_with(b"\n") {
        note.push(b'\n');
    }
    for line in missing {
        note.extend_from_slice(line);
        note.push(b'\n');
    }
    Some(note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_found_at_every_level() {
        assert_eq!(note_path("0123456789", 0), "0123456789");
        assert_eq!(note_path("0123456789", 1), "01/23456789");
        assert_eq!(note_path("0123456789", 3), "01/23/45/6789");
    }

    #[test]
    fn lines_of_both_stay() {
        let merged = |theirs: &str, ours: &str| {
            let merged = with_lines(theirs.into(), ours.as_bytes())?;
            Some(String::from_utf8(merged).unwrap())
        };
        assert_eq!(merged("", "a\n").as_deref(), Some("a\n"));
        assert_eq!(merged("b", "a\nb\nc\n").as_deref(), Some("b\na\nc\n"));
        assert_eq!(merged("b\na\n", "a\n"), None);
    }
}
