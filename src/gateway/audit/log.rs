//! The audit file: one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
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
            Err(source) => return Err(AuditError::io(path, source)),
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

    /// All records of a file; none when it does not exist. A last line without its end, which a crash left, is skipped.
    pub fn read(path: &Path) -> Result<Vec<AuditRecord>, AuditError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(AuditError::io(path, source)),
        };
        let mut reader = BufReader::new(file);
        let (mut records, mut line) = (Vec::new(), Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line);
            read.map_err(|source| AuditError::io(path, source))?;
            if !line.ends_with(b"\n") {
                return Ok(records);
            }
            let record = serde_json::from_slice(&line);
            records.push(record.map_err(|error| AuditError::parse(path, records.len() + 1, error))?);
        }
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
            Err(error) => {
                tracing::warn!(%error, "cannot write the network audit");
                // Opening it again removes an incomplete line.
                state.file = None;
            }
        }
    }
}

impl LogState {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(open_for_append(&self.path)?),
        };
        file.write_all(line)
    }
}

/// Opens the file, and removes a last line that a crash or a full disk left incomplete.
fn open_for_append(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path)?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last != *b"\n" {
        let bytes = std::fs::read(path)?;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n');
        file.set_len(complete.map_or(0, |end| end as u64 + 1))?;
    }
    Ok(file)
}

/// An audit file cannot be read.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct AuditError {
    message: String,
    source: io::Error,
}

impl AuditError {
    fn io(path: &Path, source: io::Error) -> Self {
        let message = format!("cannot read the network audit `{}`", path.display());
        Self { message, source }
    }

    fn parse(path: &Path, line: usize, error: serde_json::Error) -> Self {
        let message = format!(
            "cannot parse line {line} of the network audit `{}`",
            path.display()
        );
        let source = error.into();
        Self { message, source }
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
    fn a_record_after_a_crash_has_its_own_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("network.jsonl");
        let open = || AuditLog::open(&path, crate::clock::system()).unwrap();
        open().record(record("a.example"));
        let text = std::fs::read_to_string(&path).unwrap() + "{\"at\":\"1970-";
        std::fs::write(&path, text).unwrap();
        open().record(record("b.example"));
        assert_eq!(
            AuditLog::read(&path).unwrap(),
            [record("a.example"), record("b.example")]
        );
    }

    #[test]
    fn an_unreadable_line_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("network.jsonl");
        AuditLog::open(&path, crate::clock::system())
            .unwrap()
            .record(record("a.example"));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}not a record\n{text}")).unwrap();
        let error = AuditLog::read(&path).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot parse line 2 of the network audit"),
            "{error}"
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
