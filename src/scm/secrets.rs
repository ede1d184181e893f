//! Searches a hand-back for known secrets.

use super::entry::{GITLINK, TREE};
use super::error::ScmError;
use super::git::{GitDir, failure};
use super::history::HistoryCommit;
use crate::exec::{OutputLine, OutputSink};
use crate::id::ObjectId;
use crate::secret::Redactor;

/// How much of the output is kept. Nothing uses it.
const KEPT: usize = 4096;

/// Whether a message, a name or a file of these commits contains a known secret.
pub(super) async fn any_in(
    git: &GitDir,
    commits: &[HistoryCommit],
    redactor: &Redactor,
) -> Result<bool, ScmError> {
    if redactor.is_empty() {
        return Ok(false);
    }
    let names = commits.iter().flat_map(|commit| &commit.changes);
    if names
        .clone()
        .any(|change| redactor.finds_secret_in(&String::from_utf8_lossy(change.path.as_bytes())))
    {
        return Ok(true);
    }
    let files = names
        .filter_map(|change| change.after.as_ref())
        .filter(|entry| entry.mode != TREE && entry.mode != GITLINK)
        .map(|entry| &entry.id);
    let objects: Vec<&str> = commits
        .iter()
        .map(|commit| &commit.id)
        .chain(files)
        .map(ObjectId::as_str)
        .collect();
    let command = git
        .command("cat-file --batch")
        .stdin(objects.join("\n") + "\n")
        .keep(KEPT);
    let mut search = Search {
        redactor,
        overlap: String::new(),
        found: false,
    };
    let exit = git.stream(&command, &mut search).await?;
    if exit.success() {
        Ok(search.found)
    } else {
        Err(failure(&command, &exit))
    }
}

/// Searches output of any length while it arrives.
struct Search<'a> {
    redactor: &'a Redactor,
    /// The end of the last piece. A long line arrives in pieces, and a secret may span two of them.
    overlap: String,
    found: bool,
}

impl OutputSink for Search<'_> {
    fn line(&mut self, line: OutputLine) {
        self.overlap.push_str(&line.text);
        self.found |= self.redactor.finds_secret_in(&self.overlap);
        let begun = self.overlap.len() - self.redactor.torn_end(&self.overlap);
        self.overlap.drain(..begun);
    }

    fn wants_lines(&self) -> bool {
        !self.found
    }
}
