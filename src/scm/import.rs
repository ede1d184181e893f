//! Creates one commit with `git fast-import`. The cost depends on what changes, not on the size of the tree.

use std::path::Path;

use super::error::ScmError;
use super::git::unexpected;
use super::path::RepoPath;
use super::repository::ObjectFormat;
use crate::exec::Command;
use crate::id::ObjectId;

/// The arguments of git that a [`FastImport`] completes.
pub(super) const FAST_IMPORT: &str = "fast-import --quiet --force --done";

/// The description of a new commit.
pub(super) struct CommitSpec<'a> {
    /// The author and committer: `Name <email>`.
    pub(super) committer: &'a str,
    /// Seconds since 1970. `None` is the current time where git runs.
    pub(super) date: Option<i64>,
    pub(super) message: &'a str,
    /// The first parent, whose tree is edited. `None` starts from an empty tree.
    pub(super) from: Option<&'a ObjectId>,
    /// One more parent. Its tree is ignored.
    pub(super) merge: Option<&'a ObjectId>,
}

/// A `fast-import` stream.
pub(super) struct FastImport<'a> {
    import_ref: ImportRef<'a>,
    is_dated: bool,
    stream: Vec<u8>,
}

/// What `fast-import` does with its ref, which is mandatory.
pub(super) enum ImportRef<'a> {
    /// The ref points at the commit afterwards, wherever it was before.
    Keep(&'a str),
    /// The ref is never written. No ref points at the commit.
    Discard(&'a str),
}

impl<'a> FastImport<'a> {
    /// Starts the commit.
    pub(super) fn new(import_ref: ImportRef<'a>, commit: &CommitSpec<'_>) -> Self {
        let (ImportRef::Keep(name) | ImportRef::Discard(name)) = import_ref;
        let (committer, message) = (commit.committer, commit.message);
        let date = commit
            .date
            .map_or("now".to_owned(), |seconds| format!("{seconds} +0000"));
        let mut stream = format!(
            "commit {name}\nmark :1\ncommitter {committer} {date}\ndata {}\n{message}\n",
            message.len()
        );
        for (word, parent) in [("from", commit.from), ("merge", commit.merge)] {
            stream += &parent.map(|id| format!("{word} {id}\n")).unwrap_or_default();
        }
        Self {
            import_ref,
            is_dated: commit.date.is_some(),
            stream: stream.into_bytes(),
        }
    }

    /// Puts an existing object at `path`.
    pub(super) fn put(&mut self, path: &RepoPath, mode: u32, id: &ObjectId) {
        self.line(&format!("M {mode:06o} {id} "), path);
    }

    /// Puts a file with these bytes at `path`.
    pub(super) fn write(&mut self, path: &RepoPath, bytes: &[u8]) {
        self.line("M 100644 inline ", path);
        self.stream.extend(format!("data {}\n", bytes.len()).bytes());
        self.stream.extend_from_slice(bytes);
        self.stream.push(b'\n');
    }

    /// Makes these bytes the note of a commit, in a commit of notes.
    pub(super) fn note(&mut self, commit: &ObjectId, bytes: &[u8]) {
        let head = format!("N inline {commit}\ndata {}\n", bytes.len());
        self.stream.extend_from_slice(head.as_bytes());
        self.stream.extend_from_slice(bytes);
        self.stream.push(b'\n');
    }

    /// Removes `path`, if it exists.
    pub(super) fn remove(&mut self, path: &RepoPath) {
        self.line("D ", path);
    }

    /// Completes a command with [`FAST_IMPORT`], so that it creates the commit and prints what [`read_ids`] parses.
    pub(super) fn finish(mut self, command: Command, format: ObjectFormat) -> Command {
        self.stream.extend_from_slice(b"\nget-mark :1\nls :1 \"\"\n");
        self.end(command, format)
    }

    /// Completes a command with [`FAST_IMPORT`], so that it creates the commit, prints nothing, and writes its id to this
    /// file for [`read_mark`]. A command that prints would be killed half-way, and leave half a pack, if this process is
    /// killed.
    pub(super) fn finish_silently(mut self, command: Command, format: ObjectFormat, marks: &Path) -> Command {
        self.stream.push(b'\n');
        self.end(command, format)
            .arg(format!("--export-marks={}", marks.display()))
    }

    fn end(mut self, command: Command, format: ObjectFormat) -> Command {
        if let ImportRef::Discard(name) = self.import_ref {
            let forget = format!("reset {name}\nfrom {}\n", format.zero());
            self.stream.extend_from_slice(forget.as_bytes());
        }
        self.stream.extend_from_slice(b"done\n");
        let dates = if self.is_dated { "raw" } else { "now" };
        command.arg(format!("--date-format={dates}")).stdin(self.stream)
    }

    fn line(&mut self, command: &str, path: &RepoPath) {
        self.stream.extend_from_slice(command.as_bytes());
        self.stream.push(b'"');
        for byte in path.as_bytes() {
            match byte {
                b'"' | b'\\' => self.stream.extend([b'\\', *byte]),
                b'\n' => self.stream.extend(*b"\\n"),
                _ => self.stream.push(*byte),
            }
        }
        self.stream.extend(*b"\"\n");
    }
}

/// The new commit, from the content of a marks file.
pub(super) fn read_mark(text: &[u8]) -> Result<ObjectId, ScmError> {
    let id = text
        .strip_prefix(b":1 ")
        .and_then(|id| std::str::from_utf8(id).ok());
    id.and_then(|id| ObjectId::parse(id.trim_end()).ok())
        .ok_or_else(|| unexpected("a new commit", text))
}

/// The new commit and its tree.
pub(super) fn read_ids(printed: &[u8]) -> Result<(ObjectId, ObjectId), ScmError> {
    let text = String::from_utf8_lossy(printed);
    let mut lines = text.lines();
    let commit = lines.next().and_then(|line| ObjectId::parse(line).ok());
    let tree = lines
        .next()
        .and_then(|line| ObjectId::parse(line.strip_prefix("040000 tree ")?.trim_end()).ok());
    commit
        .zip(tree)
        .ok_or_else(|| unexpected("a new commit", printed))
}
