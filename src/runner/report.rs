//! Events on their way out: stamped, and without secrets.

use crate::text::error_chain;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::Clock;
use crate::event::{Event, EventKind, EventSink, RunEnd};
use crate::exec::{OutputLine, OutputSink};
use crate::id::RunId;
use crate::secret::{RedactingStream, Redactor};

use super::{RunError, RunParts};

/// How many lines of one command's output become events.
const SHOWN_LINES: u32 = 200;
/// A line this long arrives in pieces; the piece that is shorter ends it.
const LONGEST_PIECE: usize = 64 * 1024;

/// Emits the events of one run.
#[derive(Clone)]
pub(super) struct Reporter {
    /// Where they go.
    pub(super) sink: Arc<dyn EventSink>,
    /// Which run they are of.
    pub(super) run: RunId,
    /// When they happen.
    pub(super) clock: Arc<dyn Clock>,
    /// What they must not show.
    pub(super) redactor: Redactor,
    /// Which iteration they belong to.
    pub(super) iteration: Option<u32>,
}

impl Reporter {
    /// Reports on a run, between its iterations.
    pub(super) fn of(parts: &RunParts, run: &RunId) -> Self {
        Self {
            sink: parts.sink.clone(),
            run: run.clone(),
            clock: parts.clock.clone(),
            redactor: parts.redactor.clone(),
            iteration: None,
        }
    }

    /// Emits one event.
    pub(super) fn emit(&self, kind: EventKind) {
        let kind = self.clean(kind);
        self.sink.emit(&Event {
            at: self.clock.now(),
            run: self.run.clone(),
            iteration: self.iteration,
            kind,
        });
    }

    /// Emits a warning.
    pub(super) fn warn(&self, message: impl Into<String>) {
        self.emit(EventKind::Warning {
            message: message.into(),
        });
    }

    /// Tells that the run ends against its will, and by what.
    pub(super) fn broken(&self, error: RunError) -> RunError {
        self.emit(EventKind::RunEnded {
            outcome: RunEnd::Broken,
            reason: error_chain(&error),
        });
        error
    }

    /// The same reporter for one iteration.
    #[must_use]
    pub(super) fn in_iteration(&self, iteration: u32) -> Self {
        Self {
            iteration: Some(iteration),
            ..self.clone()
        }
    }

    /// A sink that turns a command's first lines of output into events.
    #[must_use]
    pub(super) fn lines(&self) -> LineReporter<'_> {
        LineReporter {
            reporter: self,
            shown: 0,
            pending: None,
        }
    }

    /// The same value without secrets in any of its texts.
    pub(super) fn clean<T: Serialize + DeserializeOwned>(&self, value: T) -> T {
        let Ok(text) = serde_json::to_string(&value) else {
            return value;
        };
        if !self.redactor.finds_secret_in(&text) {
            return value;
        }
        // What is put in place of a secret needs no escaping, so the text stays what it was: the same shape of JSON.
        serde_json::from_str(&self.redactor.redact(&text)).unwrap_or(value)
    }
}

/// Turns the first lines of a command's output into events.
pub(super) struct LineReporter<'a> {
    reporter: &'a Reporter,
    shown: u32,
    /// What of a very long line may be the beginning of a secret.
    pending: Option<RedactingStream>,
}

impl OutputSink for LineReporter<'_> {
    fn line(&mut self, line: OutputLine) {
        if self.shown >= SHOWN_LINES {
            return;
        }
        self.shown += 1;
        let stream = self
            .pending
            .get_or_insert_with(|| self.reporter.redactor.stream());
        let mut text = stream.push(&line.text);
        if line.text.len() < LONGEST_PIECE {
            text.extend(self.pending.take().map(RedactingStream::finish));
        }
        self.reporter.emit(EventKind::Output { text });
    }

    fn wants_lines(&self) -> bool {
        self.shown < SHOWN_LINES
    }
}
