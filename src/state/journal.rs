//! The host's own account of a run: append-only, synced, written before each paid call and after each iteration.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::ObjectId;
use crate::usage::{Tokens, Usd};

use super::{IterationRecord, Repaired, StateError, repair_log, write_atomically};

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalLine {
    /// Its number, from 1, without gaps.
    pub seq: u64,
    /// When it was written.
    pub at: Timestamp,
    /// What it says.
    #[serde(flatten)]
    pub entry: JournalEntry,
}

/// What a journal line says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum JournalEntry {
    /// A process took the run over.
    Opened {
        /// Which one, for people.
        owner: String,
    },
    /// An iteration begins.
    IterationStarted {
        /// Its number.
        iteration: u32,
    },
    /// A paid call is about to be made.
    Calling {
        /// The call's number within the run.
        call: u64,
        /// The iteration it belongs to.
        iteration: u32,
        /// The most it can cost.
        reserved: CallUsage,
    },
    /// The call came back.
    Called {
        /// The call's number within the run.
        call: u64,
        /// What it used: as reported, or the reservation where nothing was reported.
        spent: CallUsage,
    },
    /// The run waited by itself, which is no time of the budget's.
    Waited {
        /// How long.
        milliseconds: u64,
    },
    /// An iteration is recorded.
    Recorded(Box<IterationRecord>),
    /// Another profile was chosen between two iterations.
    Profile {
        /// The profile from now on.
        name: String,
    },
    /// The pull request is open.
    PullRequest {
        /// Where.
        location: String,
        /// The commit it holds.
        commit: ObjectId,
    },
    /// The run came to an end, or waits for a person.
    Ended {
        /// How.
        outcome: RunOutcomeKind,
        /// Why.
        reason: String,
    },
}

/// An amount set aside for a call, or spent by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallUsage {
    /// Tokens.
    pub tokens: Tokens,
    /// Dollars; `None` when nobody knows the price.
    pub cost: Option<Usd>,
}

/// How a run can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcomeKind {
    /// All evidence holds and the pull request is open.
    Done,
    /// It cannot be done, or a budget is spent.
    Failed,
    /// It waits for a person.
    Paused,
    /// A person stopped it.
    Stopped,
}

/// What [`Journal::catch_up`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalCatchUp {
    /// The journal had every line already.
    Nothing,
    /// It lacked so many lines at its end.
    Lines(usize),
    /// It went on differently after so many lines; of its own only what was spent is kept.
    Parted {
        /// The number of lines that were the same.
        after: usize,
    },
}

impl std::fmt::Display for RunOutcomeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        })
    }
}

/// The journal of one run, open for writing by its owner.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    lines: Vec<JournalLine>,
}

impl Journal {
    /// Opens the journal, mending a torn last line.
    pub fn open(path: &Path) -> Result<(Self, Repaired), StateError> {
        let repaired = repair_log(path)?;
        let lines = Self::read(path)?;
        Ok((
            Self {
                path: path.to_owned(),
                file: open_to_append(path)?,
                lines,
            },
            repaired,
        ))
    }

    /// Reads a journal without owning it. A torn last line is passed over: its writer may be at work.
    pub fn read(path: &Path) -> Result<Vec<JournalLine>, StateError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(StateError::io("read", path)(error)),
        };
        Self::parse(path, &text)
    }

    /// Parses journal text; `path` is only named in errors.
    pub fn parse(path: &Path, text: &str) -> Result<Vec<JournalLine>, StateError> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |(index, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|source| StateError::Corrupt {
                path: path.to_owned(),
                line: index + 1,
                source,
            })
        };
        whole.lines().enumerate().map(parse).collect()
    }

    /// The next line, as it would be written; nothing is written yet.
    #[must_use]
    pub fn next(&self, at: Timestamp, entry: JournalEntry) -> JournalLine {
        JournalLine {
            seq: self.lines.last().map_or(0, |line| line.seq) + 1,
            at,
            entry,
        }
    }

    /// Writes a line and syncs it.
    pub fn append(&mut self, at: Timestamp, entry: JournalEntry) -> Result<&JournalLine, StateError> {
        let line = self.next(at, entry);
        self.write(line)?;
        Ok(&self.lines[self.lines.len() - 1])
    }

    /// Takes over what a checkpoint says, which is right about every line it has. One taken just before a crash holds
    /// a line more than this journal; one that another machine made goes on differently from where the two part.
    pub fn catch_up(&mut self, checkpoint: Vec<JournalLine>) -> Result<JournalCatchUp, StateError> {
        let pairs = self.lines.iter().zip(&checkpoint);
        let common = pairs.take_while(|(ours, theirs)| ours == theirs).count();
        if common == checkpoint.len() {
            return Ok(JournalCatchUp::Nothing);
        }
        if common == self.lines.len() {
            let missing = checkpoint.into_iter().skip(common);
            let count = missing.len();
            missing.into_iter().try_for_each(|line| self.write(line))?;
            return Ok(JournalCatchUp::Lines(count));
        }
        let spent = spent_apart(&self.lines[..common], &self.lines[common..], &checkpoint);
        self.replace([checkpoint, spent].concat())?;
        Ok(JournalCatchUp::Parted { after: common })
    }

    /// Puts other lines in place of all of them.
    fn replace(&mut self, lines: Vec<JournalLine>) -> Result<(), StateError> {
        let mut text = Vec::new();
        for line in &lines {
            text.extend(self.text_of(line)?.bytes());
        }
        write_atomically(&self.path, &text)?;
        self.file = open_to_append(&self.path)?;
        self.lines = lines;
        Ok(())
    }

    fn text_of(&self, line: &JournalLine) -> Result<String, StateError> {
        let text = serde_json::to_string(line).map_err(|source| StateError::Corrupt {
            path: self.path.clone(),
            line: 0,
            source,
        })?;
        Ok(format!("{text}\n"))
    }

    /// All lines.
    #[must_use]
    pub fn lines(&self) -> &[JournalLine] {
        &self.lines
    }

    /// The recorded iterations, in order.
    #[must_use]
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &IterationRecord> {
        self.lines.iter().filter_map(|line| match &line.entry {
            JournalEntry::Recorded(record) => Some(record.as_ref()),
            _ => None,
        })
    }

    /// Writes one line; only the owner calls it.
    pub fn write(&mut self, line: JournalLine) -> Result<(), StateError> {
        let text = self.text_of(&line)?;
        self.file
            .write_all(text.as_bytes())
            .map_err(StateError::io("append to", &self.path))?;
        self.file
            .sync_data()
            .map_err(StateError::io("sync", &self.path))?;
        self.lines.push(line);
        Ok(())
    }
}

fn open_to_append(path: &Path) -> Result<File, StateError> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(StateError::io("open", path))
}

/// What our own lines after the common ones say was spent, numbered to go after the checkpoint's.
fn spent_apart(common: &[JournalLine], ours: &[JournalLine], checkpoint: &[JournalLine]) -> Vec<JournalLine> {
    let (shared, theirs) = (calls(common), calls(checkpoint));
    let renumbered = |call: u64| {
        if call > shared {
            call - shared + theirs
        } else {
            call
        }
    };
    let spent = ours.iter().filter_map(|line| match line.entry.clone() {
        JournalEntry::Calling {
            call,
            iteration,
            reserved,
        } => Some(JournalEntry::Calling {
            call: renumbered(call),
            iteration,
            reserved,
        }),
        JournalEntry::Called { call, spent } => Some(JournalEntry::Called {
            call: renumbered(call),
            spent,
        }),
        waited @ JournalEntry::Waited { .. } => Some(waited),
        _ => None,
    });
    let last = checkpoint.last();
    let (seq, at) = last.map_or((0, Timestamp::UNIX_EPOCH), |line| (line.seq, line.at));
    (seq + 1..)
        .zip(spent)
        .map(|(seq, entry)| JournalLine { seq, at, entry })
        .collect()
}

/// The number of the last call.
fn calls(lines: &[JournalLine]) -> u64 {
    let numbers = lines.iter().map(|line| match line.entry {
        JournalEntry::Calling { call, .. } | JournalEntry::Called { call, .. } => call,
        _ => 0,
    });
    numbers.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(iteration: u32) -> JournalEntry {
        JournalEntry::IterationStarted { iteration }
    }

    #[test]
    fn lines_are_numbered_without_gaps_across_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(Timestamp::UNIX_EPOCH, entry(1)).unwrap();
        fs::write(
            &path,
            format!("{}{{\"seq\":2,\"at", fs::read_to_string(&path).unwrap()),
        )
        .unwrap();
        let (mut journal, repaired) = Journal::open(&path).unwrap();
        assert_eq!(repaired, Repaired::TornLine(12));
        journal.append(Timestamp::UNIX_EPOCH, entry(2)).unwrap();
        let seqs: Vec<u64> = Journal::read(&path)
            .unwrap()
            .iter()
            .map(|line| line.seq)
            .collect();
        assert_eq!(seqs, [1, 2]);
    }

    #[test]
    fn a_journal_catches_up_with_a_newer_checkpoint_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mut ours, _) = Journal::open(&dir.path().join("a")).unwrap();
        let (mut theirs, _) = Journal::open(&dir.path().join("b")).unwrap();
        for journal in [&mut ours, &mut theirs] {
            journal.append(Timestamp::UNIX_EPOCH, entry(1)).unwrap();
        }
        theirs.append(Timestamp::UNIX_EPOCH, entry(2)).unwrap();
        assert_eq!(
            ours.catch_up(theirs.lines().to_vec()).unwrap(),
            JournalCatchUp::Lines(1)
        );
        assert_eq!(
            ours.catch_up(theirs.lines().to_vec()).unwrap(),
            JournalCatchUp::Nothing
        );
        assert_eq!(ours.lines(), theirs.lines());
    }

    #[test]
    fn a_journal_that_parted_from_the_checkpoint_keeps_only_what_it_spent() {
        let calling = |call| JournalEntry::Calling {
            call,
            iteration: 1,
            reserved: CallUsage::default(),
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (mut ours, _) = Journal::open(&path).unwrap();
        let (mut theirs, _) = Journal::open(&dir.path().join("b")).unwrap();
        for (journal, own) in [(&mut ours, entry(2)), (&mut theirs, entry(3))] {
            for entry in [calling(1), own, calling(2)] {
                journal.append(Timestamp::UNIX_EPOCH, entry).unwrap();
            }
        }
        let parted = ours.catch_up(theirs.lines().to_vec()).unwrap();
        assert_eq!(parted, JournalCatchUp::Parted { after: 1 });
        let entries: Vec<JournalEntry> = ours.lines().iter().map(|line| line.entry.clone()).collect();
        assert_eq!(entries, [calling(1), entry(3), calling(2), calling(3)]);
        ours.append(Timestamp::UNIX_EPOCH, entry(4)).unwrap();
        let read = Journal::read(&path).unwrap();
        assert_eq!(read, ours.lines());
        assert!(read.iter().map(|line| line.seq).eq(1..=5));
    }

    #[test]
    fn a_line_that_is_no_json_is_named() {
        let error = Journal::parse(Path::new("j"), "{}\n").unwrap_err();
        assert_eq!(error.to_string(), "`j` line 1 is not readable");
    }
}
