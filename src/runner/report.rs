//! Events with their time, run and iteration, and without secrets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::clock::Clock;
use crate::event::{Event, EventKind, EventSink, RunEnd};
use crate::exec::{CapturedOutput, OutputLine, OutputSink, OutputStream};
use crate::id::RunId;
use crate::secret::{RedactingStream, Redactor};
use crate::state::{Journal, JournalEntry, StateError};
use crate::text::error_chain;

use super::{RunError, RunInputs, RunParts};

/// How many lines of one command's output become events.
const MAX_LINES: u32 = 200;
/// The size of the pieces in which a very long line arrives, in bytes. A shorter piece ends the line.
const LINE_PIECE: usize = 64 * 1024;

/// Emits the events of one run.
pub(super) struct Reporter {
    sink: Arc<dyn EventSink>,
    run: RunId,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    /// The current iteration; 0 before the first.
    iteration: AtomicU32,
}

impl Reporter {
    /// A reporter before the first iteration.
    pub(super) fn new(parts: &RunParts, run: &RunId) -> Self {
        Self {
            sink: parts.sink.clone(),
            run: run.clone(),
            clock: parts.clock.clone(),
            redactor: parts.redactor.clone(),
            iteration: AtomicU32::new(0),
        }
    }

    /// Emits one event.
    pub(super) fn emit(&self, kind: EventKind) {
        let kind = self
            .redactor
            .redact_json(kind)
            .unwrap_or_else(|error| EventKind::Warning {
                message: format!("an event is withheld because its secrets could not be removed: {error}"),
            });
        let iteration = self.iteration.load(Ordering::Relaxed);
        self.sink.emit(&Event {
            at: self.clock.now(),
            run: self.run.clone(),
            iteration: (iteration > 0).then_some(iteration),
            kind,
        });
    }

    /// Emits a warning.
    pub(super) fn warn(&self, message: impl Into<String>) {
        self.emit(EventKind::Warning {
            message: message.into(),
        });
    }

    /// Makes this the iteration of all further events.
    pub(super) fn begin_iteration(&self, iteration: u32) {
        self.iteration.store(iteration, Ordering::Relaxed);
    }

    /// A sink that turns the first lines of a command's output into events.
    pub(super) fn lines(&self) -> LineReporter<'_> {
        LineReporter {
            reporter: self,
            shown: 0,
            pending: None,
            kept: None,
        }
    }
}

/// Reports that an error ends the run, and writes it to the journal, where `status` finds it. Only the owner may.
pub(super) fn record_broken(inputs: RunInputs<'_>, error: &RunError) {
    if matches!(error, RunError::State(StateError::Owned { .. })) {
        // The run is not broken: another process works on it.
        return;
    }
    let (reporter, reason) = (inputs.reporter, error_chain(error));
    reporter.emit(EventKind::RunEnded {
        outcome: RunEnd::Broken,
        reason: reason.clone(),
    });
    let reason = inputs.parts.redactor.redact(&reason);
    let recorded = Journal::open(&inputs.dir.journal_file()).and_then(|(mut journal, _)| {
        journal.append(inputs.parts.clock.now(), JournalEntry::Broken { reason })
    });
    if let Err(error) = recorded {
        reporter.warn(format!(
            "cannot record that the run broke: {}",
            error_chain(&error)
        ));
    }
}

/// Turns the first lines of a command's output into events.
pub(super) struct LineReporter<'a> {
    reporter: &'a Reporter,
    shown: u32,
    /// The end of the last piece of a very long line, which may be the beginning of a secret.
    pending: Option<RedactingStream>,
    /// Keeps what the command prints on stdout, even when it is interrupted.
    pub(super) kept: Option<&'a mut CapturedOutput>,
}

impl OutputSink for LineReporter<'_> {
    fn line(&mut self, line: OutputLine) {
        if self.shown >= MAX_LINES {
            return;
        }
        self.shown += 1;
        let stream = self
            .pending
            .get_or_insert_with(|| self.reporter.redactor.stream());
        let mut text = stream.push(&line.text);
        if line.text.len() < LINE_PIECE {
            text.extend(self.pending.take().map(RedactingStream::finish));
        }
        self.reporter.emit(EventKind::Output { text });
    }

    fn bytes(&mut self, stream: OutputStream, bytes: &[u8]) {
        if let Some(kept) = self.kept.as_mut().filter(|_| stream == OutputStream::Stdout) {
            kept.push(bytes);
        }
    }

    fn wants_lines(&self) -> bool {
        self.shown < MAX_LINES
    }
}
