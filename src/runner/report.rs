//! Events with their time, run and iteration, and without secrets.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::agent::{AgentSession, ReportedAction};
use crate::clock::Clock;
use crate::event::{Event, EventKind, EventSink, RunEnd};
use crate::exec::{CapturedOutput, OutputLine, OutputSink, OutputStream};
use crate::id::RunId;
use crate::secret::{RedactingStream, Redactor};
use crate::state::{Journal, JournalEntry, StateError};
use crate::text::{error_chain, one_line, without_escapes};

use super::actions::ActionsLog;
use super::{RunError, RunInputs, RunParts};

/// How many lines of one command's output become events.
const MAX_LINES: u32 = 200;
/// How many actions of one agent program become events, and how many characters of each.
const MAX_ACTIONS: u32 = 2_000;
const ACTION_CHARS: usize = 200;
/// The longest line of a transcript in which actions are looked for, in bytes.
const MAX_TRANSCRIPT_LINE: usize = 1 << 20;
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
            session: None,
            line: String::new(),
            log: None,
            actions: 0,
            open: BTreeMap::new(),
        }
    }
}

/// Reports that an error ends the run, and writes it to the journal, where `status` finds it. Only the owner may.
pub(super) fn record_broken(inputs: RunInputs<'_>, error: &RunError) {
    if error.is_taken_over() || matches!(error, RunError::State(StateError::Owned { .. })) {
        // The run is not broken: another process works on it.
        return;
    }
    let (reporter, reason) = (inputs.reporter, error_chain(error));
    let entry = JournalEntry::Broken {
        reason: inputs.parts.redactor.redact(&reason),
    };
    let recorded = Journal::open(&inputs.dir.journal_file())
        .and_then(|(mut journal, _)| journal.append(inputs.parts.clock.now(), entry));
    if let Err(error) = recorded {
        reporter.warn(format!(
            "cannot record that the run broke: {}",
            error_chain(&error)
        ));
    }
    reporter.emit(EventKind::RunEnded {
        outcome: RunEnd::Broken,
        reason,
    });
}

/// Turns the first lines of a command's output into events.
pub(super) struct LineReporter<'a> {
    reporter: &'a Reporter,
    shown: u32,
    /// The end of the last piece of a very long line, which may be the beginning of a secret.
    pending: Option<RedactingStream>,
    /// Keeps what the command prints on stdout, even when it is interrupted.
    pub(super) kept: Option<&'a mut CapturedOutput>,
    /// The session of the agent program that prints, which knows the actions in its transcript.
    pub(super) session: Option<&'a mut dyn AgentSession>,
    /// The beginning of a line of the transcript that arrives in pieces.
    line: String,
    /// Keeps the actions that are reported, even when the command is interrupted.
    pub(super) log: Option<&'a mut ActionsLog>,
    /// The number of actions that were reported.
    actions: u32,
    /// The actions that started and did not end yet, by their ids in the transcript.
    open: BTreeMap<String, OpenAction>,
}

/// An action that started.
struct OpenAction {
    what: String,
    started: Instant,
}

impl LineReporter<'_> {
    /// The actions that a line or the last piece of it reports. `None` if it does not belong to a transcript.
    fn actions_in(&mut self, line: &OutputLine) -> Option<Vec<ReportedAction>> {
        let session = self.session.as_ref()?;
        if line.stream != OutputStream::Stdout {
            return None;
        }
        if self.line.len() + line.text.len() <= MAX_TRANSCRIPT_LINE {
            self.line.push_str(&line.text);
        }
        let actions = session.reported_actions(&self.line);
        // A piece may end up to three bytes earlier, so that no character is cut.
        if line.text.len() < LINE_PIECE - 3 {
            self.line.clear();
        }
        actions
    }

    fn report(&mut self, action: ReportedAction) {
        match action {
            ReportedAction::Started { id, what } => {
                if let Some(what) = self.count(&what) {
                    self.reporter
                        .emit(EventKind::ActionStarted { what: what.clone() });
                    let started = Instant::now();
                    self.open.insert(id, OpenAction { what, started });
                }
            }
            ReportedAction::Ended { id, failed } => {
                if let Some(action) = self.open.remove(&id) {
                    let failed = failed.map(|reason| self.shortened(&reason));
                    self.end(action, failed);
                }
            }
            ReportedAction::Performed { what } => {
                if let Some(what) = self.count(&what) {
                    self.log_activity(format!("action: {what}"));
                    self.reporter.emit(EventKind::Action {
                        what,
                        seconds: None,
                        failed: None,
                    });
                }
            }
        }
    }

    /// The text of another action; `None` if there were too many.
    fn count(&mut self, what: &str) -> Option<String> {
        if self.actions >= MAX_ACTIONS {
            return None;
        }
        self.actions += 1;
        if let Some(log) = &mut self.log {
            log.reported += 1;
        }
        Some(self.shortened(what))
    }

    /// Reports the end of an action. The transcript has no times, so that of its lines counts.
    fn end(&mut self, OpenAction { what, started }: OpenAction, failed: Option<String>) {
        let seconds = (started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        let end = failed.as_deref().unwrap_or("ok");
        self.log_activity(format!("action: {what}: {end}, {seconds} s"));
        self.reporter.emit(EventKind::Action {
            what,
            seconds: Some(seconds),
            failed,
        });
    }

    fn log_activity(&mut self, line: String) {
        if let Some(log) = &mut self.log {
            log.activity.push(line);
        }
    }

    /// A text on one line, without secrets.
    fn shortened(&self, text: &str) -> String {
        let text = one_line(&self.reporter.redactor.redact(text));
        let mut shown: String = text.chars().take(ACTION_CHARS).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        shown
    }

    fn show(&mut self, line: &OutputLine, is_transcript: bool) {
        if self.shown >= MAX_LINES {
            return;
        }
        self.shown += 1;
        let stream = self
            .pending
            .get_or_insert_with(|| self.reporter.redactor.stream());
        let mut text = stream.push(&uncoloured(&self.reporter.redactor, &line.text));
        if line.text.len() < LINE_PIECE {
            text.extend(self.pending.take().map(RedactingStream::finish));
        }
        self.reporter.emit(if is_transcript {
            EventKind::Transcript { text }
        } else {
            EventKind::Output { text }
        });
    }
}

/// A line as it is, or without its escape sequences if these split a secret: readers of the log leave the sequences out.
fn uncoloured<'t>(redactor: &Redactor, line: &'t str) -> Cow<'t, str> {
    if !line.contains('\u{1b}') {
        return Cow::Borrowed(line);
    }
    let mut plain = String::with_capacity(line.len());
    without_escapes(line, &mut plain);
    if redactor.redact(&plain) == plain {
        Cow::Borrowed(line)
    } else {
        Cow::Owned(plain)
    }
}

/// Ends the actions whose end the program did not report, for example because it was interrupted.
impl Drop for LineReporter<'_> {
    fn drop(&mut self) {
        for action in std::mem::take(&mut self.open).into_values() {
            self.end(action, Some("its end was not reported".to_owned()));
        }
    }
}

impl OutputSink for LineReporter<'_> {
    fn line(&mut self, line: OutputLine) {
        let actions = self.actions_in(&line);
        self.show(&line, actions.is_some());
        for action in actions.into_iter().flatten() {
            self.report(action);
        }
    }

    fn bytes(&mut self, stream: OutputStream, bytes: &[u8]) {
        if let Some(kept) = self.kept.as_mut().filter(|_| stream == OutputStream::Stdout) {
            kept.push(bytes);
        }
    }

    fn wants_lines(&self) -> bool {
        let awaits_actions = self.actions < MAX_ACTIONS || !self.open.is_empty();
        self.shown < MAX_LINES || (self.session.is_some() && awaits_actions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Agent, AgentBrief, Claude, ModelAccess, ProgramAgent};
    use crate::runner::tests::{SECRET, TestRun};

    #[test]
    fn colours_that_split_a_secret_are_left_out() {
        let redactor = Redactor::new([crate::secret::Secret::new("CANARY-0123456789")]);
        let line = "key \u{1b}[31mCANARY\u{1b}[m-0123456789";
        assert_eq!(uncoloured(&redactor, line), "key CANARY-0123456789");
        let harmless = "\u{1b}[31mred\u{1b}[m";
        assert_eq!(uncoloured(&redactor, harmless), harmless);
    }

    async fn events_of(printed: &str) -> Vec<EventKind> {
        let run = TestRun::new().await;
        let brief = AgentBrief {
            text: String::new(),
            iteration: 1,
            home: "/box/agent".into(),
            cost_left: None,
        };
        let mut session = ProgramAgent::new(Claude::new(), ModelAccess::default()).session(&brief);
        let inputs = run.inputs();
        let mut lines = inputs.reporter.lines();
        lines.session = Some(session.as_mut());
        let pieces = printed
            .lines()
            .flat_map(|line| line.as_bytes().chunks(LINE_PIECE));
        for piece in pieces {
            lines.line(OutputLine {
                stream: OutputStream::Stdout,
                text: String::from_utf8(piece.to_vec()).unwrap(),
            });
        }
        drop(lines);
        run.events()
    }

    fn actions(events: &[EventKind]) -> Vec<&str> {
        let actions = events.iter().filter_map(|event| match event {
            EventKind::Action { what, .. } => Some(what.as_str()),
            _ => None,
        });
        actions.collect()
    }

    #[tokio::test]
    async fn each_action_of_an_agent_program_is_one_line_beside_its_transcript() {
        let recorded = include_str!("../../tests/fixtures/agents/claude-ok.jsonl");
        let events = events_of(&format!("{recorded}plain text")).await;
        assert_eq!(
            actions(&events),
            ["Bash: echo from-real-claude > hello.txt && ls"]
        );
        let transcript =
            |event: &&EventKind| matches!(event, EventKind::Transcript { text } if text.starts_with('{'));
        assert_eq!(events.iter().filter(transcript).count(), recorded.lines().count());
        let output: Vec<&EventKind> = events
            .iter()
            .filter(|event| matches!(event, EventKind::Output { .. }))
            .collect();
        assert_eq!(
            output,
            [&EventKind::Output {
                text: "plain text".to_owned()
            }]
        );
    }

    #[tokio::test]
    async fn an_action_of_an_agent_program_starts_and_takes_time() {
        let call = serde_json::json!({"type": "assistant", "message": {"id": "m", "content":
            [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}, {"type": "tool_use", "id": "t2", "name": "Bash", "input": {}}]}});
        let result = serde_json::json!({"type": "user", "message": {"content":
            [{"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": format!("no\n{SECRET}")}]}});
        let events = events_of(&format!("{call}\n{result}\n{result}")).await;
        let of_actions: Vec<String> = events
            .iter()
            .filter_map(|event| match event {
                EventKind::ActionStarted { what } => Some(format!("> {what}")),
                EventKind::Action {
                    what,
                    seconds,
                    failed,
                } => {
                    assert!(seconds.is_some_and(|seconds| (0.0..60.0).contains(&seconds)));
                    Some(format!("{what}: {failed:?}"))
                }
                _ => None,
            })
            .collect();
        assert_eq!(
            of_actions,
            [
                "> Read",
                "> Bash",
                "Read: Some(\"no [redacted]\")",
                "Bash: Some(\"its end was not reported\")"
            ]
        );
    }

    #[tokio::test]
    async fn an_action_is_cut_and_has_no_secret_and_no_line_break() {
        let call = |name: &str, input: serde_json::Value| {
            let part = serde_json::json!({"type": "tool_use", "name": name, "input": input});
            serde_json::json!({"type": "assistant", "message": {"id": "m", "content": [part]}}).to_string()
        };
        let long = serde_json::json!({"file_path": "long.txt", "content": "x".repeat(3 * LINE_PIECE)});
        let secret = serde_json::json!({"command": format!("{}\n{SECRET} end", "y".repeat(190))});
        let mut printed = format!("{}\n{}\n", call("Write", long), call("Bash", secret));
        // Actions are reported although the transcript has too many lines to show.
        for _ in 0..=MAX_LINES {
            printed += "{}\n";
        }
        printed += &call("Read", serde_json::json!({"file_path": "last.txt"}));
        let events = events_of(&printed).await;
        let expected = format!("Bash: {} [re…", "y".repeat(190));
        assert_eq!(actions(&events), ["Write: long.txt", &expected, "Read: last.txt"]);
    }
}
