//! The audit file: one JSON object a line.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;
use thiserror::Error;

use super::{AuditRecord, AuditSink, AuditVerdict};
use crate::clock::Clock;
use crate::text::error_chain;

/// Writes records to a file of limited size.
///
/// A sandbox can make requests without end. So repeats are counted after a while, denied requests get half of the file at
/// most, and a file without room for an allowed one is closed with a record that says so.
pub struct AuditLog {
    state: Mutex<LogState>,
    limits: AuditLimits,
    clock: Arc<dyn Clock>,
}

/// The limits of an audit file.
#[derive(Clone, Copy, Debug)]
pub struct AuditLimits {
    /// The size of the file in bytes.
    pub max_bytes: u64,
    /// Whether the sandbox loses its network when the file is full.
    pub closes_sandbox: bool,
}

impl Default for AuditLimits {
    fn default() -> Self {
        Self {
            max_bytes: 64 << 20,
            closes_sandbox: false,
        }
    }
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
    /// The room for denied requests.
    denied_bytes_left: u64,
    /// What was recorded so far, without traffic.
    kinds: HashMap<AuditRecord, RecordedKind>,
    /// How many of the kinds are allowed, and how many are denied.
    kind_counts: [usize; 2],
    is_full: bool,
}

/// The requests of one kind.
#[derive(Debug, Default)]
struct RecordedKind {
    /// Those in the file.
    written: u64,
    /// Those that are not in the file yet.
    pending: Traffic,
}

#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    count: u64,
    sent: u64,
    received: u64,
}

/// So many requests of a kind get a line each. Later ones are counted, with a line whenever their number doubles and at the
/// end.
const LINES_EACH: u64 = 100;
/// The most kinds whose repeats are counted, of allowed and of denied requests each. It protects the memory of the host.
const MAX_KINDS: usize = 10_000;
/// Room for the lines that say what was not recorded.
const RESERVED_BYTES: u64 = 16 << 10;

impl AuditLog {
    /// Opens a file with the usual limits. It is created with the first record.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, AuditError> {
        Self::open_with(path, clock, AuditLimits::default())
    }

    /// Opens a file with these limits.
    pub fn open_with(path: &Path, clock: Arc<dyn Clock>, limits: AuditLimits) -> Result<Self, AuditError> {
        let length = match path.metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(source) => return Err(AuditError::io(path, source)),
        };
        let bytes_left = limits.max_bytes.saturating_sub(length);
        let state = LogState {
            path: path.to_owned(),
            file: None,
            bytes_left,
            denied_bytes_left: bytes_left / 2,
            kinds: HashMap::new(),
            kind_counts: [0; 2],
            is_full: false,
        };
        Ok(Self {
            state: Mutex::new(state),
            limits,
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
        state.add(&record, self.clock.now());
    }

    fn is_closed(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.limits.closes_sandbox && state.is_full
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.write_pending(self.clock.now());
    }
}

impl LogState {
    fn add(&mut self, record: &AuditRecord, at: Timestamp) {
        let kind = AuditRecord {
            sent: 0,
            received: 0,
            count: 1,
            ..record.clone()
        };
        if !kind.is_note() && !self.kinds.contains_key(&kind) {
            let count = &mut self.kind_counts[usize::from(kind.verdict == AuditVerdict::Denied)];
            if *count >= MAX_KINDS {
                return self.write(record, at);
            }
            *count += 1;
        }
        let known = self.kinds.entry(kind.clone()).or_default();
        known.pending.count += record.count;
        known.pending.sent += record.sent;
        known.pending.received += record.received;
        let lines_each = if kind.is_note() { 1 } else { LINES_EACH };
        if known.written < lines_each || known.pending.count >= known.written {
            let line = known.take_pending(kind);
            self.write(&line, at);
        }
    }

    /// Writes what was counted since the last line of each kind.
    fn write_pending(&mut self, at: Timestamp) {
        // Twice: what has no room is counted once more.
        for _ in 0..2 {
            let pending = self.kinds.iter_mut().filter(|(_, known)| known.pending.count > 0);
            let lines: Vec<AuditRecord> = pending
                .map(|(kind, known)| known.take_pending(kind.clone()))
                .collect();
            for line in lines {
                self.write(&line, at);
            }
        }
    }

    fn write(&mut self, record: &AuditRecord, at: Timestamp) {
        let Ok(mut line) = serde_json::to_vec(&AuditLine { at, record }) else {
            return;
        };
        line.push(b'\n');
        let length = line.len() as u64;
        let is_denied = record.verdict == AuditVerdict::Denied;
        // Lines about what is not recorded have room of their own.
        let reserved = if record.is_note() { 0 } else { RESERVED_BYTES };
        if is_denied && !record.is_note() && length > self.denied_bytes_left {
            let others = AuditRecord::unrecorded(AuditRecord::OTHERS, record.count);
            return self.add(&others, at);
        }
        if length + reserved > self.bytes_left {
            return self.mark_full(at);
        }
        match self.append(&line) {
            Ok(()) => {
                self.bytes_left -= length;
                self.denied_bytes_left -= if is_denied {
                    length.min(self.denied_bytes_left)
                } else {
                    0
                };
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "cannot write the network audit");
                // Opening it again removes an incomplete line.
                self.file = None;
            }
        }
    }

    /// Says in the file that it is full.
    fn mark_full(&mut self, at: Timestamp) {
        if !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!(path = %self.path.display(), "{}", AuditRecord::FULL);
            self.write(&AuditRecord::unrecorded(AuditRecord::FULL, 1), at);
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(open_for_append(&self.path)?),
        };
        file.write_all(line)
    }
}

impl RecordedKind {
    /// A record of what was counted since the last line.
    fn take_pending(&mut self, kind: AuditRecord) -> AuditRecord {
        let Traffic {
            count,
            sent,
            received,
        } = std::mem::take(&mut self.pending);
        self.written += count;
        AuditRecord {
            sent,
            received,
            count,
            ..kind
        }
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
    use rstest::rstest;

    use super::super::{AuditProtocol, AuditTally};
    use super::*;

    fn record(host: &str) -> AuditRecord {
        AuditRecord {
            protocol: AuditProtocol::Tls,
            host: Some(host.to_owned()),
            port: Some(443),
            verdict: AuditVerdict::Denied,
            rule: "host not in policy".to_owned(),
            needs: None,
            failed: None,
            sent: 0,
            received: 0,
            count: 1,
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

    fn allowed(host: &str) -> AuditRecord {
        AuditRecord {
            verdict: AuditVerdict::Allowed,
            sent: 3,
            ..record(host)
        }
    }

    const SMALL: AuditLimits = AuditLimits {
        max_bytes: 64 << 10,
        closes_sandbox: true,
    };

    fn open(path: &Path) -> AuditLog {
        AuditLog::open_with(path, crate::clock::system(), SMALL).unwrap()
    }

    #[test]
    fn repeats_are_counted_and_not_written_one_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("network.jsonl");
        let log = open(&path);
        for _ in 0..100_000 {
            log.record(record("a.example"));
            log.record(allowed("b.example"));
        }
        assert!(!log.is_closed());
        drop(log);
        let records = AuditLog::read(&path).unwrap();
        assert!(records.len() < 300, "{}", records.len());
        let tally: AuditTally = records.iter().collect();
        assert_eq!(tally.blocked().next().unwrap().count, 100_000);
        assert_eq!(tally.reached().next().unwrap().count, 100_000);
        let sent: u64 = records.iter().map(|record| record.sent).sum();
        assert_eq!((sent, tally.is_incomplete), (300_000, false));
    }

    #[rstest]
    #[case::no_room(128 << 10)]
    #[case::more_kinds_than_are_counted(4 << 20)]
    fn denied_requests_leave_room_for_allowed_ones(#[case] max_bytes: u64) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("network.jsonl");
        let limits = AuditLimits { max_bytes, ..SMALL };
        let log = AuditLog::open_with(&path, crate::clock::system(), limits).unwrap();
        for number in 0..60_000 {
            log.record(record(&format!("n{number}.example")));
        }
        assert!(std::fs::metadata(&path).unwrap().len() < max_bytes * 6 / 10);
        for _ in 0..60_000 {
            log.record(allowed("b.example"));
        }
        assert!(!log.is_closed());
        drop(log);
        let records = AuditLog::read(&path).unwrap();
        assert!(records.contains(&allowed("b.example")));
        assert_eq!(records.iter().map(|record| record.count).sum::<u64>(), 120_000);
    }

    #[test]
    fn a_full_file_says_so_and_closes_the_sandbox() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("network.jsonl");
        let log = open(&path);
        for number in 0..2_000 {
            log.record(allowed(&format!("n{number}.example")));
        }
        assert!(log.is_closed());
        drop(log);
        assert!(std::fs::metadata(&path).unwrap().len() <= SMALL.max_bytes);
        let tally: AuditTally = AuditLog::read(&path).unwrap().iter().collect();
        assert!(tally.is_incomplete);
        // Nor does a log that is opened again take more.
        let again = open(&path);
        again.record(allowed("b.example"));
        assert!(again.is_closed());
    }
}
