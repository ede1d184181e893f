//! What a person changes in the run files by hand. Text that is appended becomes a request to the run; of any other change
//! the person's version is kept beside the run, with a warning.
//!
//! A copy of what ralph itself wrote last, and of the text before, shows what is not its own, also after a crash. The copy is
//! written first, so that a crash between the two looks like neither.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::digest::Digest;
use crate::state::{
    HandFile, Inbox, Intervention, InterventionRequest, StateError, if_exists, write_atomically,
};

/// Who made a change by hand: the file does not say.
const BY: &str = "a person, by hand";

/// The copies of what ralph wrote.
#[derive(Debug)]
pub(super) struct HandEdits {
    /// The directory of the run files.
    dir: PathBuf,
    copies: PathBuf,
}

impl HandEdits {
    /// The copies of the run files in `dir`, which are beside it.
    pub(super) fn of(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            copies: dir.with_file_name("written"),
        }
    }

    /// Remembers that ralph is about to write this text.
    pub(super) fn written(&self, name: &str, text: &str) -> Result<(), StateError> {
        match self.copy_of(name) {
            Some(copy) => remember(&copy, text),
            None => Ok(()),
        }
    }

    /// Remembers that ralph is about to append this text.
    pub(super) fn appended(&self, name: &str, text: &str) -> Result<(), StateError> {
        let Some(copy) = self.copy_of(name) else {
            return Ok(());
        };
        match read(&copy)? {
            Some(before) => remember(&copy, &(before + text)),
            None => Ok(()),
        }
    }

    fn copy_of(&self, name: &str) -> Option<PathBuf> {
        let is_kept = HandFile::ALL.iter().any(|file| file.name() == name);
        is_kept.then(|| self.copies.join(name))
    }

    /// Moves what a person appended into the inbox, and undoes every change by hand. Returns warnings about changes that
    /// are no appended text.
    pub(super) fn collect(&self, inbox: &Inbox, now: Timestamp) -> Result<Vec<String>, StateError> {
        let mut warnings = Vec::new();
        for file in HandFile::ALL {
            let (path, copy) = (self.dir.join(file.name()), self.copies.join(file.name()));
            // Without a copy nothing was written on this host yet.
            let Some(written) = read(&copy)? else { continue };
            let found = read(&path)?.unwrap_or_default();
            // A crash between the copy and the file leaves the text before.
            if found == written || read(&before(&copy))?.is_some_and(|before| before == found) {
                continue;
            }
            match found.strip_prefix(&written) {
                Some(text) => inbox.leave(&request(file, &written, text, now))?,
                None => warnings.push(self.set_aside(file, &found)?),
            }
            write_atomically(&path, written.as_bytes())?;
        }
        Ok(warnings)
    }

    /// Keeps a person's version of a file. Returns the warning.
    fn set_aside(&self, file: HandFile, found: &str) -> Result<String, StateError> {
        let kept = self.dir.with_file_name(format!("{}.by-hand", file.name()));
        write_atomically(&kept, found.as_bytes())?;
        Ok(format!(
            "`{}` was changed by hand: only text that is appended is used, so ralph goes on with its own version; yours \
             is kept in `{}`",
            file.name(),
            kept.display()
        ))
    }
}

/// The request to keep appended text. The same text after the same beginning is the same request, so a crash before the
/// change is undone does not add it twice.
fn request(file: HandFile, written: &str, text: &str, now: Timestamp) -> InterventionRequest {
    let id = Digest::sha256_fields([file.name(), written, text]).short();
    let text = text.to_owned();
    InterventionRequest {
        id: format!("by-hand-{id}"),
        ..InterventionRequest::new(Intervention::Append { file, text }, BY, now)
    }
}

/// Replaces a copy, and keeps the text before.
fn remember(copy: &Path, text: &str) -> Result<(), StateError> {
    if let Some(old) = read(copy)? {
        write_atomically(&before(copy), old.as_bytes())?;
    }
    write_atomically(copy, text.as_bytes())
}

fn before(copy: &Path) -> PathBuf {
    copy.with_extension("before")
}

fn read(path: &Path) -> Result<Option<String>, StateError> {
    let bytes = if_exists(fs::read(path)).map_err(StateError::io("read", path))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn collected(by_ralph: &str, by_hand: &str) -> (Vec<String>, Vec<Intervention>, String) {
        let run = tempfile::tempdir().unwrap();
        let dir = run.path().join("ralph");
        fs::create_dir(&dir).unwrap();
        let (edits, inbox) = (HandEdits::of(&dir), Inbox::new(run.path()));
        edits.written("notes.md", by_ralph).unwrap();
        let mut warnings = Vec::new();
        // Twice: a crash may come between the request and the end of its collection.
        for _ in 0..2 {
            fs::write(dir.join("notes.md"), by_hand).unwrap();
            warnings = edits.collect(&inbox, Timestamp::UNIX_EPOCH).unwrap();
        }
        let asked = inbox.pending().unwrap().into_iter();
        let left = fs::read_to_string(dir.join("notes.md")).unwrap();
        (
            warnings,
            asked.map(|request| request.intervention).collect(),
            left,
        )
    }

    #[rstest]
    #[case::unchanged("a\n", "a\n", None)]
    #[case::appended("a\n", "a\nb\n", Some("b\n"))]
    #[case::first_text("", "b\n", Some("b\n"))]
    fn appended_text_is_a_request(#[case] by_ralph: &str, #[case] by_hand: &str, #[case] text: Option<&str>) {
        let (warnings, asked, left) = collected(by_ralph, by_hand);
        let append = |text: &str| Intervention::Append {
            file: HandFile::Notes,
            text: text.to_owned(),
        };
        assert_eq!(asked, text.map(append).into_iter().collect::<Vec<_>>());
        assert_eq!((warnings, left.as_str()), (Vec::new(), by_ralph));
    }

    #[test]
    fn a_crash_between_the_copy_and_the_file_is_no_change_by_hand() {
        let run = tempfile::tempdir().unwrap();
        let dir = run.path().join("ralph");
        fs::create_dir(&dir).unwrap();
        let (edits, inbox) = (HandEdits::of(&dir), Inbox::new(run.path()));
        edits.written("notes.md", "a\n").unwrap();
        fs::write(dir.join("notes.md"), "a\n").unwrap();
        edits.appended("notes.md", "b\n").unwrap();
        assert!(edits.collect(&inbox, Timestamp::UNIX_EPOCH).unwrap().is_empty());
        assert!(inbox.pending().unwrap().is_empty());
    }

    #[rstest]
    #[case::rewritten("a\n", "b\n")]
    #[case::shortened("a\nb\n", "a\n")]
    fn another_change_is_kept_with_a_warning(#[case] by_ralph: &str, #[case] by_hand: &str) {
        let (warnings, asked, left) = collected(by_ralph, by_hand);
        assert_eq!((asked, left.as_str()), (Vec::new(), by_ralph));
        let kept = warnings[0].rsplit('`').nth(1).unwrap();
        assert!(warnings[0].contains("`notes.md` was changed by hand") && kept.ends_with("notes.md.by-hand"));
    }
}
