//! The event log of a run.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError};

use crate::event::{Event, EventSink};

use super::AssemblyError;
use super::error::io_error;

/// Appends events to the log of the run, then passes them on.
///
/// A log that cannot be written does not end the run: a resume needs the journal, not the log.
pub(super) struct EventLog {
    file: Mutex<File>,
    warning: Once,
    next: Arc<dyn EventSink>,
}

impl EventLog {
    pub(super) fn open(path: &Path, next: Arc<dyn EventSink>) -> Result<Self, AssemblyError> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        Ok(Self {
            file: Mutex::new(file.map_err(io_error("open", path))?),
            warning: Once::new(),
            next,
        })
    }

    fn append(&self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_string(event)?;
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())
    }
}

impl EventSink for EventLog {
    fn emit(&self, event: &Event) {
        if let Err(error) = self.append(event) {
            let warn = || tracing::warn!(%error, "cannot write the event log of the run");
            self.warning.call_once(warn);
        }
        self.next.emit(event);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use jiff::Timestamp;

    use super::*;
    use crate::event::EventKind;
    use crate::id::RunId;

    /// Reads the log whenever it gets an event.
    struct Reader {
        log: PathBuf,
        seen: Mutex<Vec<String>>,
    }

    impl EventSink for Reader {
        fn emit(&self, _event: &Event) {
            let log = std::fs::read_to_string(&self.log).unwrap();
            self.seen.lock().unwrap().push(log);
        }
    }

    #[test]
    fn an_event_is_in_the_log_before_it_is_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let reader = Arc::new(Reader {
            log: dir.path().join("events.jsonl"),
            seen: Mutex::default(),
        });
        let event = Event {
            at: Timestamp::UNIX_EPOCH,
            run: RunId::random(),
            iteration: None,
            kind: EventKind::RunResumed {
                recorded: 0,
                repaired: Vec::new(),
                agent: String::new(),
                provider: String::new(),
            },
        };
        let log = EventLog::open(&reader.log, reader.clone()).unwrap();
        log.emit(&event);
        let line = format!("{}\n", serde_json::to_string(&event).unwrap());
        assert_eq!(*reader.seen.lock().unwrap(), [line]);
    }
}
