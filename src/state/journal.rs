//! The journal of a run: append-only and synced, with an entry before and after each paid call and after each iteration.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::RunEnd;
use crate::id::ObjectId;
use crate::usage::{Tokens, Usd};

use super::run_dir::{check_format, first_format};
use super::{
    CheckResult, CommandFailure, DoctorReport, Intervention, InterventionRequest, IterationRecord,
    StateError, if_exists, open_to_append, repair_log, to_json, write_atomically,
};

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalLine {
    /// Its number, from 1, without gaps.
    pub seq: u64,
    /// When it was written, by the wall clock.
    pub at: Timestamp,
    /// Milliseconds since its process opened the journal, by a clock that cannot be set. Older journals lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monotonic_ms: Option<u64>,
    /// The entry.
    #[serde(flatten)]
    pub entry: JournalEntry,
}

impl JournalLine {
    /// What a person asked for, if the run did it here.
    #[must_use]
    pub fn intervention(&self) -> Option<&Intervention> {
        match &self.entry {
            JournalEntry::Intervened { asked, refused: None } => Some(&asked.intervention),
            _ => None,
        }
    }
}

/// An entry of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum JournalEntry {
    /// A process opened the run.
    Opened {
        /// The process, for people.
        owner: String,
        /// The format of the lines from here on.
        #[serde(default = "first_format")]
        format: u32,
    },
    /// An iteration starts.
    IterationStarted {
        /// The number of the iteration.
        iteration: u32,
    },
    /// A paid call is about to be made.
    Calling {
        /// The number of the call within the run.
        call: u64,
        /// The iteration it belongs to.
        iteration: u32,
        /// The most it can use.
        reserved: CallCharge,
    },
    /// The call returned.
    Called {
        /// The number of the call within the run.
        call: u64,
        /// What it used as reported, or the reservation if nothing was reported.
        spent: CallCharge,
    },
    /// The run waited for a model, which does not count against the time budget.
    Waited {
        /// How long it waited.
        milliseconds: u64,
    },
    /// The run waited for the CI of the forge, which counts against no budget.
    AwaitedCi {
        /// How long it waited.
        milliseconds: u64,
    },
    /// An iteration is recorded.
    Recorded(Box<IterationRecord>),
    /// The commands of the task ran on the base commit, which no agent has touched.
    BaseEvidence {
        /// Each command once.
        checks: Vec<CheckResult>,
        /// How those that do not pass failed.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        failures: Vec<CommandFailure>,
    },
    /// A share of a budget was used, and reported.
    BudgetWarned {
        /// The name of the limit.
        budget: String,
        /// The limit, for people.
        limit: String,
        /// The share in percent.
        percent: u32,
    },
    /// The doctor made a diagnosis.
    Diagnosed {
        /// The iteration it came after.
        iteration: u32,
        /// What the doctor says.
        report: Box<DoctorReport>,
        /// Whether its signs and its profile were applied. Otherwise they wait for a person.
        applied: bool,
    },
    /// The doctor chose another profile between two iterations.
    Profile {
        /// The profile of the next iteration.
        name: String,
    },
    /// A person's request was carried out, or refused.
    Intervened {
        /// The request.
        asked: Box<InterventionRequest>,
        /// Why it was refused, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// The pull request is open.
    PullRequest {
        /// A URL or a file.
        location: String,
        /// The commit that it contains.
        commit: ObjectId,
    },
    /// The checks of the forge failed on the commit of the pull request. The work goes on with what they say.
    CiFailed {
        /// The commit.
        commit: ObjectId,
        /// The names of the checks.
        checks: Vec<String>,
    },
    /// Reviewers of the pull request have their answer.
    ReviewAnswered {
        /// The round of review, from 1.
        round: usize,
        /// The thread; `None` below the pull request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<u64>,
    },
    /// The run ended, or waits for a person.
    Ended {
        /// How it ended.
        outcome: RunOutcomeKind,
        /// Why it ended.
        reason: String,
    },
    /// An error ended the process that worked on the run. A resume continues after the last recorded iteration.
    Broken {
        /// The error with its causes.
        reason: String,
    },
}

/// What people asked for and the run did, in order.
pub fn interventions(lines: &[JournalLine]) -> impl DoubleEndedIterator<Item = &Intervention> {
    lines.iter().filter_map(JournalLine::intervention)
}

/// Whether a request was carried out or refused.
#[must_use]
pub fn is_handled(lines: &[JournalLine], id: &str) -> bool {
    let is_it =
        |line: &JournalLine| matches!(&line.entry, JournalEntry::Intervened { asked, .. } if asked.id == id);
    lines.iter().any(is_it)
}

/// The recorded iterations that no retry took back.
#[must_use]
pub fn standing_records(lines: &[JournalLine]) -> Vec<&IterationRecord> {
    let mut records: Vec<&IterationRecord> = Vec::new();
    for line in lines {
        if let JournalEntry::Recorded(record) = &line.entry {
            records.push(record);
        } else if let Some(Intervention::Retry { from }) = line.intervention() {
            records.retain(|record| record.iteration <= *from);
        }
    }
    records
}

/// What is reserved for a call, or was used by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCharge {
    /// Input and output tokens.
    pub tokens: Tokens,
    /// The cost; `None` when the price is unknown.
    pub cost: Option<Usd>,
}

/// How a run can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcomeKind {
    /// All evidence passed and the pull request is open.
    Done,
    /// The task cannot be done, or a budget is spent.
    Failed,
    /// The run waits for a person.
    Paused,
    /// A person stopped it.
    Stopped,
}

impl From<RunOutcomeKind> for RunEnd {
    fn from(kind: RunOutcomeKind) -> Self {
        match kind {
            RunOutcomeKind::Done => Self::Done,
            RunOutcomeKind::Failed => Self::Failed,
            RunOutcomeKind::Paused => Self::Paused,
            RunOutcomeKind::Stopped => Self::Stopped,
        }
    }
}

impl std::fmt::Display for RunOutcomeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        RunEnd::from(*self).fmt(f)
    }
}

/// The journal of one run, open for writing by its owner.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    lines: Vec<JournalLine>,
    opened: Instant,
    /// When this process opened the journal or wrote its last line.
    newest: Instant,
}

impl Journal {
    /// Opens the journal and repairs a torn last line, whose length in bytes is returned.
    pub fn open(path: &Path) -> Result<(Self, Option<u64>), StateError> {
        let repaired = repair_log(path)?;
        let lines = Self::read(path)?;
        let now = Instant::now();
        Ok((
            Self {
                path: path.to_owned(),
                file: open_to_append(path)?,
                lines,
                opened: now,
                newest: now,
            },
            repaired,
        ))
    }

    /// Reads a journal without owning it. A torn last line is skipped: its owner may be writing it.
    pub fn read(path: &Path) -> Result<Vec<JournalLine>, StateError> {
        let text = if_exists(fs::read_to_string(path)).map_err(StateError::io("read", path))?;
        Self::parse(path, &text.unwrap_or_default())
    }

    /// Parses the text of a journal. Only errors name `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Vec<JournalLine>, StateError> {
        Self::parse_after(path, text, 0)
    }

    /// Parses the text of a journal after its first `before` lines.
    pub(crate) fn parse_after(
        path: &Path,
        text: &str,
        before: usize,
    ) -> Result<Vec<JournalLine>, StateError> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |(index, line): (usize, &str)| {
            let line: JournalLine = serde_json::from_str(line).map_err(|source| StateError::Corrupt {
                path: path.to_owned(),
                line: before + index + 1,
                source,
            })?;
            if let JournalEntry::Opened { format, .. } = line.entry {
                check_format(path, format)?;
            }
            Ok(line)
        };
        whole.lines().enumerate().map(parse).collect()
    }

    /// The next line. It is not written yet.
    #[must_use]
    pub fn next(&self, at: Timestamp, entry: JournalEntry) -> JournalLine {
        JournalLine {
            seq: self.lines.last().map_or(0, |line| line.seq) + 1,
            at,
            monotonic_ms: u64::try_from(self.opened.elapsed().as_millis()).ok(),
            entry,
        }
    }

    /// Writes and syncs an entry.
    pub fn append(&mut self, at: Timestamp, entry: JournalEntry) -> Result<(), StateError> {
        let line = self.next(at, entry);
        self.write(line)
    }

    /// Takes over the lines of a checkpoint, which wins over this journal. A checkpoint saved just before a crash has one
    /// line more; one from another host differs after some line, and of our own lines only the usage of calls is kept.
    /// Returns what changed, for people.
    pub fn catch_up(&mut self, checkpoint: Vec<JournalLine>) -> Result<Option<String>, StateError> {
        let pairs = self.lines.iter().zip(&checkpoint);
        let common = pairs.take_while(|(ours, theirs)| ours == theirs).count();
        if common == checkpoint.len() {
            return Ok(None);
        }
        if common == self.lines.len() {
            let mut missing = checkpoint.into_iter().skip(common);
            missing.try_for_each(|line| self.write(line))?;
            return Ok(Some("the journal caught up with the checkpoint".to_owned()));
        }
        let spent = usage_after(&self.lines[..common], &self.lines[common..], &checkpoint);
        self.replace([checkpoint, spent].concat())?;
        Ok(Some(format!(
            "the journal differed from the checkpoint after line {common}; the checkpoint wins"
        )))
    }

    /// Replaces all lines.
    fn replace(&mut self, lines: Vec<JournalLine>) -> Result<(), StateError> {
        let mut text = Vec::new();
        for line in &lines {
            text.extend(self.encode(line)?);
        }
        write_atomically(&self.path, &text)?;
        self.file = open_to_append(&self.path)?;
        self.lines = lines;
        Ok(())
    }

    fn encode(&self, line: &JournalLine) -> Result<Vec<u8>, StateError> {
        let mut text = to_json(&self.path, line)?;
        text.push(b'\n');
        Ok(text)
    }

    /// All lines.
    #[must_use]
    pub fn lines(&self) -> &[JournalLine] {
        &self.lines
    }

    /// How long ago this process opened the journal or wrote its last line.
    #[must_use]
    pub fn since_last_line(&self) -> Duration {
        self.newest.elapsed()
    }

    /// The recorded iterations, in order.
    #[must_use]
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &IterationRecord> {
        self.lines.iter().filter_map(|line| match &line.entry {
            JournalEntry::Recorded(record) => Some(record.as_ref()),
            _ => None,
        })
    }

    /// Whether a request was carried out or refused.
    #[must_use]
    pub fn has_handled(&self, id: &str) -> bool {
        is_handled(&self.lines, id)
    }

    /// Writes and syncs a line that [`Journal::next`] made. Only the owner of the run may.
    pub fn write(&mut self, line: JournalLine) -> Result<(), StateError> {
        let text = self.encode(&line)?;
        let metadata = self.file.metadata();
        let before = metadata.map_err(StateError::io("read", &self.path))?.len();
        if let Err(error) = self.write_synced(&text) {
            // A full disk leaves a part of the line, and the next line must not follow it.
            self.file
                .set_len(before)
                .map_err(StateError::io("repair", &self.path))?;
            return Err(error);
        }
        self.lines.push(line);
        self.newest = Instant::now();
        Ok(())
    }

    fn write_synced(&mut self, text: &[u8]) -> Result<(), StateError> {
        let written = self.file.write_all(text);
        written.map_err(StateError::io("append to", &self.path))?;
        self.file.sync_data().map_err(StateError::io("sync", &self.path))
    }
}

/// The calls and waits in our own lines after the common ones, renumbered to follow the checkpoint.
fn usage_after(common: &[JournalLine], ours: &[JournalLine], checkpoint: &[JournalLine]) -> Vec<JournalLine> {
    let (shared, theirs) = (calls(common), calls(checkpoint));
    let spent = ours.iter().filter_map(|line| {
        let mut entry = line.entry.clone();
        match &mut entry {
            JournalEntry::Calling { call, .. } | JournalEntry::Called { call, .. } if *call > shared => {
                *call = *call - shared + theirs;
            }
            JournalEntry::Calling { .. } | JournalEntry::Called { .. } | JournalEntry::Waited { .. } => {}
            _ => return None,
        }
        Some(entry)
    });
    let last = checkpoint.last();
    let (seq, at) = last.map_or((0, Timestamp::UNIX_EPOCH), |line| (line.seq, line.at));
    let line = |(seq, entry)| JournalLine {
        seq,
        at,
        monotonic_ms: last.and_then(|line| line.monotonic_ms),
        entry,
    };
    (seq + 1..).zip(spent).map(line).collect()
}

/// The number of the last call; 0 without any.
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
        assert_eq!(repaired, Some(12));
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
        let shared = ours.next(Timestamp::UNIX_EPOCH, entry(1));
        for journal in [&mut ours, &mut theirs] {
            journal.write(shared.clone()).unwrap();
        }
        theirs.append(Timestamp::UNIX_EPOCH, entry(2)).unwrap();
        let caught_up = ours.catch_up(theirs.lines().to_vec()).unwrap();
        assert_eq!(caught_up.unwrap(), "the journal caught up with the checkpoint");
        assert_eq!(ours.lines(), theirs.lines());
        assert_eq!(ours.catch_up(theirs.lines().to_vec()).unwrap(), None);
        assert_eq!(ours.lines(), theirs.lines());
    }

    #[test]
    fn a_journal_that_diverged_from_the_checkpoint_keeps_only_its_usage() {
        let calling = |call| JournalEntry::Calling {
            call,
            iteration: 1,
            reserved: CallCharge::default(),
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (mut ours, _) = Journal::open(&path).unwrap();
        let (mut theirs, _) = Journal::open(&dir.path().join("b")).unwrap();
        let shared = ours.next(Timestamp::UNIX_EPOCH, calling(1));
        for (journal, own) in [(&mut ours, entry(2)), (&mut theirs, entry(3))] {
            journal.write(shared.clone()).unwrap();
            for entry in [own, calling(2)] {
                journal.append(Timestamp::UNIX_EPOCH, entry).unwrap();
            }
        }
        let diverged = ours.catch_up(theirs.lines().to_vec()).unwrap();
        assert_eq!(
            diverged.unwrap(),
            "the journal differed from the checkpoint after line 1; the checkpoint wins"
        );
        let entries: Vec<JournalEntry> = ours.lines().iter().map(|line| line.entry.clone()).collect();
        assert_eq!(entries, [calling(1), entry(3), calling(2), calling(3)]);
        ours.append(Timestamp::UNIX_EPOCH, entry(4)).unwrap();
        let read = Journal::read(&path).unwrap();
        assert_eq!(read, ours.lines());
        assert!(read.iter().map(|line| line.seq).eq(1..=5));
    }

    #[test]
    fn a_line_that_is_not_an_entry_is_named() {
        let error = Journal::parse(Path::new("j"), "{}\n").unwrap_err();
        assert_eq!(error.to_string(), "cannot parse `j` line 1");
    }
}
