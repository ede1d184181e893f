//! The file of a meter: one JSON object a line, append-only.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::CallAmount;
use crate::text::error_chain;

/// An entry of the file.
#[derive(Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub(super) enum MeterEntry {
    /// Later calls belong to this session.
    Began { session: u64, iteration: u32 },
    /// A call is about to be forwarded.
    Reserved {
        call: u64,
        model: String,
        #[serde(flatten)]
        amount: CallAmount,
    },
    /// A call is over.
    Spent {
        call: u64,
        #[serde(flatten)]
        amount: CallAmount,
    },
}

#[derive(Serialize)]
struct WrittenLine<'a> {
    at: Timestamp,
    #[serde(flatten)]
    entry: &'a MeterEntry,
}

/// The open file.
///
/// A line is passed to the operating system before its call is forwarded, so that it survives the end of this process. A
/// thread syncs it to the disk right after. Only a power failure in between loses it.
pub(super) struct MeterFile {
    path: PathBuf,
    file: File,
    /// The length of the complete lines, in bytes.
    length: u64,
    /// Whether the file may end in an incomplete line that could not be removed. Then no line may follow it.
    is_broken: bool,
    written: Option<Sender<()>>,
    syncing: Option<thread::JoinHandle<()>>,
}

impl MeterFile {
    /// Opens the file and reads its entries. Removes a last line that a crash left incomplete.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<MeterEntry>), MeterError> {
        let error = |source| MeterError::io(path, source);
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(error(source)),
        };
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        let entries = parse(path, &text[..complete])?;
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(error)?;
        if complete < text.len() {
            file.set_len(complete as u64).map_err(error)?;
        }
        let (written, to_sync) = channel();
        let synced = file.try_clone().map_err(error)?;
        let syncing = thread::spawn(move || sync(&synced, &to_sync));
        let file = Self {
            path: path.to_owned(),
            file,
            length: complete as u64,
            is_broken: false,
            written: Some(written),
            syncing: Some(syncing),
        };
        Ok((file, entries))
    }

    /// Appends an entry. After a failure that left an incomplete line every write fails, until the file is opened again.
    pub(super) fn write(&mut self, at: Timestamp, entry: &MeterEntry) -> Result<(), MeterError> {
        let error = |source| MeterError::io(&self.path, source);
        if self.is_broken {
            return Err(error(io::Error::other(
                "an earlier write left an incomplete line",
            )));
        }
        let mut line =
            serde_json::to_vec(&WrittenLine { at, entry }).map_err(|source| error(source.into()))?;
        line.push(b'\n');
        if let Err(source) = self.file.write_all(&line) {
            self.is_broken = self.file.set_len(self.length).is_err();
            return Err(error(source));
        }
        self.length += line.len() as u64;
        if let Some(written) = &self.written {
            // The thread runs as long as this value exists.
            let _ = written.send(());
        }
        Ok(())
    }
}

impl Drop for MeterFile {
    fn drop(&mut self) {
        self.written = None;
        if let Some(syncing) = self.syncing.take() {
            let _ = syncing.join();
        }
    }
}

/// Syncs the file after each write. Several writes in quick succession need one sync.
fn sync(file: &File, written: &Receiver<()>) {
    while written.recv().is_ok() {
        while written.try_recv().is_ok() {}
        if let Err(error) = file.sync_data() {
            tracing::warn!(error = %error_chain(&error), "cannot sync the file of the meter");
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<MeterEntry>, MeterError> {
    let read = |(index, line)| {
        serde_json::from_str(line).map_err(|error| MeterError {
            message: format!("cannot parse line {} of `{}`", index + 1, path.display()),
            source: error.into(),
        })
    };
    text.lines().enumerate().map(read).collect()
}

/// The file of a meter cannot be used.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct MeterError {
    message: String,
    source: io::Error,
}

impl MeterError {
    /// The file cannot be read or written.
    fn io(path: &Path, source: io::Error) -> Self {
        let message = format!("cannot record the cost of calls in `{}`", path.display());
        Self { message, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_appended_to_an_incomplete_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spending.jsonl");
        let entry = |session| MeterEntry::Began {
            session,
            iteration: 1,
        };
        let (mut file, _) = MeterFile::open(&path).unwrap();
        file.write(Timestamp::UNIX_EPOCH, &entry(1)).unwrap();
        // A file that is open for reading can be neither written nor shortened.
        let writable = std::mem::replace(&mut file.file, File::open(&path).unwrap());
        file.write(Timestamp::UNIX_EPOCH, &entry(2)).unwrap_err();
        file.file = writable;
        file.file.write_all(b"{\"at\":\"1970-").unwrap();
        file.write(Timestamp::UNIX_EPOCH, &entry(3)).unwrap_err();
        drop(file);
        let (mut file, entries) = MeterFile::open(&path).unwrap();
        assert_eq!(entries.len(), 1);
        file.write(Timestamp::UNIX_EPOCH, &entry(4)).unwrap();
        assert_eq!(MeterFile::open(&path).unwrap().1.len(), 2);
    }
}
