//! The audit file: one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;
use thiserror::Error;

use super::{AuditRecord, AuditSink};
use crate::clock::Clock;

/// Writes records to a file. When the file has its maximum size, later records are dropped.
pub struct AuditLog {
    state: Mutex<LogState>,
    clock: Arc<dyn Clock>,
}

#[derive(Serialize)]
struct AuditLine<'a> {
    at: Timestamp,
    #[serde(flatten)]
    record: &'a AuditRecord,
}

#[derive(Debug)]
struct LogState {
    path: PathBuf,
    /// Opened for the first record, so that there is no empty file.
    file: Option<File>,
    bytes_left: u64,
}

impl AuditLog {
    /// The maximum size of the file, in bytes.
    pub const MAX_BYTES: u64 = 64 * 1024 * 1024;

    /// Opens a file. It is created with the first record.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, AuditError> {
        let length = match path.metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(source) => return Err(AuditError::new(path, source)),
        };
        let state = LogState {
            path: path.to_owned(),
            file: None,
            bytes_left: Self::MAX_BYTES.saturating_sub(length),
        };
        Ok(Self {
            state: Mutex::new(state),
            clock,
        })
    }

    /// All records of a file; none when it does not exist. A last line that a crash left incomplete is skipped.
    pub fn read(path: &Path) -> Result<Vec<AuditRecord>, AuditError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(AuditError::new(path, source)),
        };
        let mut records = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|source| AuditError::new(path, source))?;
            records.extend(serde_json::from_str(&line).ok());
        }
        Ok(records)
    }
}

impl AuditSink for AuditLog {
    fn record(&self, record: AuditRecord) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let line = AuditLine {
            at: self.clock.now(),
            record: &record,
        };
        let Ok(mut line) = serde_json::to_vec(&line) else {
            return;
        };
        line.push(b'\n');
        let length = line.len() as u64;
        if length > state.bytes_left {
            return;
        }
        match state.append(&line) {
            Ok(()) => state.bytes_left -= length,
            Err(error) => tracing::warn!(%error, "cannot write the network audit"),
        }
    }
}

impl LogState {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().append(true).create(true).open(&self.path)?),
        };
        file.write_all(line)
    }
}

/// An audit file cannot be read.
#[derive(Debug, Error)]
#[error("cannot read the network audit `{}`", path.display())]
pub struct AuditError {
    path: PathBuf,
    source: io::Error,
}

impl AuditError {
    fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self { path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AuditProtocol, AuditVerdict};
    use super::*;

    fn record(host: &str) -> AuditRecord {
        AuditRecord {
            protocol: AuditProtocol::Tls,
            host: Some(host.to_owned()),
            port: Some(443),
            verdict: AuditVerdict::Denied,
            rule: "host not in policy".to_owned(),
            needs: None,
            sent: 0,
            received: 0,
        }
    }

    #[test]
    fn records_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("network.jsonl");
        assert_eq!(AuditLog::read(&path).unwrap(), []);
        let log = AuditLog::open(&path, crate::clock::system()).unwrap();
        assert!(!path.exists());
        log.record(record("a.example"));
        let again = AuditLog::open(&path, crate::clock::system()).unwrap();
        again.record(record("b.example"));
        let text = std::fs::read_to_string(&path).unwrap() + "{\"at\":\"1970-";
        std::fs::write(&path, text).unwrap();
        assert_eq!(
            AuditLog::read(&path).unwrap(),
            [record("a.example"), record("b.example")]
        );
    }

    #[test]
    fn a_full_file_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("network.jsonl");
        let log = AuditLog::open(&path, crate::clock::system()).unwrap();
        log.state.lock().unwrap().bytes_left = 300;
        for _ in 0..9 {
            log.record(record("a.example"));
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= 300);
    }
}
