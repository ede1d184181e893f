//! The event log of a run.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};

use crate::event::{Event, EventSink};
use crate::state::{StateError, open_to_append, repair_log, to_json};
use crate::text::error_chain;

/// Appends events to the log of the run, then passes them on.
///
/// A log that cannot be written does not end the run: a resume needs the journal, not the log.
pub(super) struct EventLog {
    path: PathBuf,
    /// `None` after a write failed, which may have left an incomplete line.
    file: Mutex<Option<File>>,
    warning: Once,
    next: Arc<dyn EventSink>,
}

impl EventLog {
    pub(super) fn open(path: &Path, next: Arc<dyn EventSink>) -> Result<Self, StateError> {
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(Some(open_to_append(path)?)),
            warning: Once::new(),
            next,
        })
    }

    fn append(&self, event: &Event) -> Result<(), StateError> {
        let mut line = to_json(&self.path, event)?;
        line.push(b'\n');
        let mut opened = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = if let Some(file) = opened.take() {
            file
        } else {
            // Otherwise this line would continue the incomplete one.
            repair_log(&self.path)?;
            open_to_append(&self.path)?
        };
        file.write_all(&line)
            .map_err(StateError::io("write", &self.path))?;
        *opened = Some(file);
        Ok(())
    }
}

impl EventSink for EventLog {
    fn emit(&self, event: &Event) {
        if let Err(error) = self.append(event) {
            let warn =
                || tracing::warn!(error = %error_chain(&error), "cannot write the event log of the run");
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
