//! One commit as a `git fast-import` stream: a tree is edited where it changes, whatever its size.

use super::error::ScmError;
use super::git::unexpected;
use super::path::RepoPath;
use super::repository::ObjectFormat;
use crate::exec::Command;
use crate::id::ObjectId;

/// A commit to be made.
pub(super) struct NewCommit<'a> {
    /// Who it is by: `Name <email>`.
    pub(super) committer: &'a str,
    pub(super) date: Date,
    pub(super) message: &'a str,
    /// The first parent, whose tree the edits start from; without one they start from an empty tree.
    pub(super) from: Option<&'a ObjectId>,
    /// One more parent, whose tree plays no part.
    pub(super) merge: Option<&'a ObjectId>,
}

/// When a commit was made.
#[derive(Clone, Copy)]
pub(super) enum Date {
    /// By the clock of where git runs.
    Now,
    /// So many seconds after 1970.
    At(i64),
}

/// A `fast-import` stream being written.
pub(super) struct Import<'a> {
    target: Target<'a>,
    date: Date,
    stream: Vec<u8>,
}

/// What fast-import does with the ref it must be given.
pub(super) enum Target<'a> {
    /// The ref will point at the commit, wherever it was before.
    Lasting(&'a str),
    /// The ref is never written; nothing will point at the commit.
    Scratch(&'a str),
}

impl<'a> Import<'a> {
    /// Starts the commit.
    pub(super) fn new(target: Target<'a>, commit: &NewCommit<'_>) -> Self {
        let (Target::Lasting(name) | Target::Scratch(name)) = target;
        let (committer, message) = (commit.committer, commit.message);
        let date = match commit.date {
            Date::Now => "now".to_owned(),
            Date::At(seconds) => format!("{seconds} +0000"),
        };
        let mut stream = format!(
            "commit {name}\nmark :1\ncommitter {committer} {date}\ndata {}\n{message}\n",
            message.len()
        );
        for (word, parent) in [("from", commit.from), ("merge", commit.merge)] {
            stream += &parent.map(|id| format!("{word} {id}\n")).unwrap_or_default();
        }
        Self {
            target,
            date: commit.date,
            stream: stream.into_bytes(),
        }
    }

    /// Puts an object that exists at `path`.
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

    /// Removes `path`, if it is there.
    pub(super) fn remove(&mut self, path: &RepoPath) {
        self.line("D ", path);
    }

    /// The command that makes the commit and prints what [`read_ids`] reads.
    pub(super) fn finish(mut self, git: Command, format: ObjectFormat) -> Command {
        self.stream.extend_from_slice(b"\nget-mark :1\nls :1 \"\"\n");
        self.end(git, format)
    }

    /// The command that makes the commit, prints nothing, and writes its id to this file for [`read_mark`]. One that
    /// prints is killed half-way, and leaves half a pack, when nobody lives to read it.
    pub(super) fn finish_in_silence(mut self, git: Command, format: ObjectFormat, marks: &str) -> Command {
        self.stream.push(b'\n');
        self.end(git, format).arg(format!("--export-marks={marks}"))
    }

    fn end(mut self, git: Command, format: ObjectFormat) -> Command {
        if let Target::Scratch(name) = self.target {
            let forget = format!("reset {name}\nfrom {}\n", format.zero());
            self.stream.extend_from_slice(forget.as_bytes());
        }
        self.stream.extend_from_slice(b"done\n");
        let dates = match self.date {
            Date::Now => "--date-format=now",
            Date::At(_) => "--date-format=raw",
        };
        let options = ["fast-import", "--quiet", "--force", "--done", dates];
        git.args(options).stdin(self.stream)
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

/// The commit that was made, from the text of a marks file.
pub(super) fn read_mark(text: &[u8]) -> Result<ObjectId, ScmError> {
    let id = text
        .strip_prefix(b":1 ")
        .and_then(|id| std::str::from_utf8(id).ok());
    id.and_then(|id| ObjectId::parse(id).ok())
        .ok_or_else(|| unexpected("a new commit", text))
}

/// The commit that was made and its tree.
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
