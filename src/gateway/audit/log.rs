//! The audit file: one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use thiserror::Error;

use super::{AuditSink, Record, Tally};

/// Writes records to a file and counts them. A sandbox cannot fill the disk with them: past a size they are only counted.
#[derive(Debug)]
pub struct AuditLog {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Opened for the first record, so that there is no file where nothing is written.
    file: Option<File>,
    room: u64,
    tally: Tally,
}

impl AuditLog {
    /// How large the file may get.
    pub const MOST_BYTES: u64 = 64 * 1024 * 1024;

    /// Goes on with a file, or begins it with the first record.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let written = match path.metadata() {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(source) => {
                let path = path.to_owned();
                return Err(AuditError::Io { path, source });
            }
        };
        let inner = Inner {
            path: path.to_owned(),
            file: None,
            room: Self::MOST_BYTES.saturating_sub(written),
            tally: Self::read(path)?.iter().collect(),
        };
        Ok(Self {
            inner: Mutex::new(inner),
        })
    }

    /// Every record of a file; none when there is no file. A last line that was cut off by a crash is passed over.
    pub fn read(path: &Path) -> Result<Vec<Record>, AuditError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                let path = path.to_owned();
                return Err(AuditError::Io { path, source });
            }
        };
        let mut records = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|source| AuditError::Io {
                path: path.to_owned(),
                source,
            })?;
            records.extend(serde_json::from_str(&line).ok());
        }
        Ok(records)
    }

    /// The counts so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .tally
            .clone()
    }
}

impl AuditSink for AuditLog {
    fn record(&self, record: Record) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.tally.add(&record);
        let Ok(mut line) = serde_json::to_vec(&record) else {
            return;
        };
        line.push(b'\n');
        let length = line.len() as u64;
        if length > inner.room {
            return;
        }
        match inner.append(&line) {
            Ok(()) => inner.room -= length,
            Err(error) => tracing::warn!(%error, "the audit of the gateway cannot be written"),
        }
    }
}

impl Inner {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().append(true).create(true).open(&self.path)?),
        };
        file.write_all(line)
    }
}

/// What can go wrong with an audit file.
#[derive(Debug, Error)]
pub enum AuditError {
    /// It cannot be read or written.
    #[error("the audit file `{}` cannot be used", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::{Outcome, Protocol};
    use super::*;

    fn record(host: &str) -> Record {
        Record {
            at: Timestamp::UNIX_EPOCH,
            protocol: Protocol::Tls,
            host: Some(host.to_owned()),
            port: Some(443),
            verdict: Outcome::Denied,
            rule: "host not in policy".to_owned(),
            needs: None,
            sent: 0,
            received: 0,
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("network.jsonl");
        assert_eq!(AuditLog::read(&path).unwrap(), []);
        let log = AuditLog::open(&path).unwrap();
        assert!(!path.exists());
        log.record(record("a.example"));
        let again = AuditLog::open(&path).unwrap();
        again.record(record("b.example"));
        let text = std::fs::read_to_string(&path).unwrap() + "{\"at\":\"1970-";
        std::fs::write(&path, text).unwrap();
        assert_eq!(
            AuditLog::read(&path).unwrap(),
            [record("a.example"), record("b.example")]
        );
        assert_eq!(again.tally().blocked().count(), 2);
    }

    #[test]
    fn a_full_file_is_not_written_to_and_still_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("network.jsonl");
        let log = AuditLog::open(&path).unwrap();
        log.inner.lock().unwrap().room = 300;
        for _ in 0..9 {
            log.record(record("a.example"));
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= 300);
        assert_eq!(log.tally().blocked().next().unwrap().count, 9);
    }
}
