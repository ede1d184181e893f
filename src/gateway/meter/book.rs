//! The file that a meter survives a crash by: one JSON object a line, only ever added to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Amount;
use super::account::Session;
use crate::usage::{Tokens, Usd};

/// What is written down.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    /// Calls are of this session from now on.
    Began(Session),
    /// A call is about to be forwarded.
    Reserved {
        call: u64,
        model: String,
        amount: Amount,
    },
    /// It is over.
    Spent { call: u64, amount: Amount },
}

/// An open file.
///
/// A line is with the system before the call goes on, so that it outlives this process however that ends. A thread brings
/// it to the disk right after; only a machine that loses its power within that moment forgets it.
pub(super) struct Book {
    path: PathBuf,
    file: File,
    /// How long the file is with its whole lines.
    length: u64,
    written: Option<Sender<()>>,
    syncing: Option<thread::JoinHandle<()>>,
}

impl Book {
    /// Opens the file, mending a last line that a crash cut short, and reads what it says.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Entry>), MeterError> {
        let error = |source| MeterError::Io {
            path: path.to_owned(),
            source,
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(error(source)),
        };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let entries = parse(path, &text[..whole])?;
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(error)?;
        if whole < text.len() {
            file.set_len(whole as u64).map_err(error)?;
        }
        let (written, to_sync) = channel();
        let synced = file.try_clone().map_err(error)?;
        let syncing = thread::spawn(move || sync(&synced, &to_sync));
        let book = Self {
            path: path.to_owned(),
            file,
            length: whole as u64,
            written: Some(written),
            syncing: Some(syncing),
        };
        Ok((book, entries))
    }

    /// Writes an entry.
    pub(super) fn write(&mut self, at: Timestamp, entry: &Entry) -> Result<(), MeterError> {
        let error = |source| MeterError::Io {
            path: self.path.clone(),
            source,
        };
        let line = Line {
            at,
            entry: entry.into(),
        };
        let mut text = serde_json::to_vec(&line).map_err(|source| error(source.into()))?;
        text.push(b'\n');
        if let Err(source) = self.file.write_all(&text) {
            // Half a line must not spoil those to come; where even that fails, opening the file mends its end.
            let _ = self.file.set_len(self.length);
            return Err(error(source));
        }
        self.length += text.len() as u64;
        if let Some(written) = &self.written {
            // The thread ends only with this value.
            let _ = written.send(());
        }
        Ok(())
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        self.written = None;
        if let Some(syncing) = self.syncing.take() {
            let _ = syncing.join();
        }
    }
}

/// Brings to the disk what was written, many lines at a time when they come fast.
fn sync(file: &File, written: &Receiver<()>) {
    while written.recv().is_ok() {
        while written.try_recv().is_ok() {}
        if let Err(error) = file.sync_data() {
            tracing::warn!(%error, "what calls cost cannot be brought to the disk");
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<Entry>, MeterError> {
    let read = |(index, line)| match serde_json::from_str::<Line>(line) {
        Ok(line) => Ok(line.entry.into()),
        Err(source) => Err(MeterError::Corrupt {
            path: path.to_owned(),
            line: index + 1,
            source,
        }),
    };
    text.lines().enumerate().map(read).collect()
}

/// What can go wrong with the file of a meter.
#[derive(Debug, Error)]
pub enum MeterError {
    /// It cannot be read or written.
    #[error("what calls cost cannot be kept in `{}`", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It does not hold what it should.
    #[error("`{}` line {line} is not readable", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What the parser said.
        source: serde_json::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct Line {
    at: Timestamp,
    #[serde(flatten)]
    entry: Stored,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
enum Stored {
    Began {
        session: u64,
        iteration: u32,
    },
    Reserved {
        call: u64,
        model: String,
        tokens: Tokens,
        cost: Option<Usd>,
    },
    Spent {
        call: u64,
        tokens: Tokens,
        cost: Option<Usd>,
    },
}

impl From<&Entry> for Stored {
    fn from(entry: &Entry) -> Self {
        match entry.clone() {
            Entry::Began(Session { iteration, number }) => Self::Began {
                session: number,
                iteration,
            },
            Entry::Reserved {
                call,
                model,
                amount: Amount { tokens, cost },
            } => Self::Reserved {
                call,
                model,
                tokens,
                cost,
            },
            Entry::Spent {
                call,
                amount: Amount { tokens, cost },
            } => Self::Spent { call, tokens, cost },
        }
    }
}

impl From<Stored> for Entry {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Began { session, iteration } => Self::Began(Session {
                iteration,
                number: session,
            }),
            Stored::Reserved {
                call,
                model,
                tokens,
                cost,
            } => Self::Reserved {
                call,
                model,
                amount: Amount { tokens, cost },
            },
            Stored::Spent { call, tokens, cost } => Self::Spent {
                call,
                amount: Amount { tokens, cost },
            },
        }
    }
}
