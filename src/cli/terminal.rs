//! Prints the events of a run, as text or as JSON.

use crate::event::{Event, EventKind, EventSink, PreflightResult, RunEnd};

use super::ui::Ui;

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFormat {
    /// Lines of text on stderr.
    Text,
    /// Lines of text, with the output of commands.
    Verbose,
    /// JSON on stdout, one object per line.
    Json,
}

impl EventFormat {
    /// Prints events in this format.
    pub(super) fn sink(self, ui: Ui) -> EventPrinter {
        EventPrinter { ui, format: self }
    }
}

/// Prints events.
#[derive(Debug)]
pub(super) struct EventPrinter {
    ui: Ui,
    format: EventFormat,
}

impl EventSink for EventPrinter {
    fn emit(&self, event: &Event) {
        let is_output = matches!(event.kind, EventKind::Output { .. });
        match self.format {
            EventFormat::Text if is_output => {}
            EventFormat::Text | EventFormat::Verbose => self.ui.say(event_line(event, self.ui.colour)),
            EventFormat::Json => {
                if let Ok(text) = serde_json::to_string(event) {
                    let _ = self.ui.data(text);
                }
            }
        }
    }
}

/// An event as a line of text.
#[must_use]
pub(super) fn event_line(event: &Event, colour: bool) -> String {
    let paint = |code: &str, text: String| {
        if colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text
        }
    };
    match &event.kind {
        EventKind::RunStarted {
            task,
            branch,
            provider,
            agent,
        } => paint(
            "1",
            format!(
                "run {}: {task} (agent {agent}, sandbox {provider}, branch {branch})",
                event.run
            ),
        ),
        EventKind::RunResumed { recorded, repaired } => {
            let mended = if repaired.is_empty() {
                String::new()
            } else {
                format!("; mended: {}", repaired.join(", "))
            };
            paint(
                "1",
                format!("run {}: taken up after iteration {recorded}{mended}", event.run),
            )
        }
        EventKind::IterationStarted { profile } => paint(
            "1",
            format!("iteration {} with {profile}", event.iteration.unwrap_or(0)),
        ),
        EventKind::IterationEnded {
            summary,
            loop_score,
            gutter,
            changed_lines,
            seconds,
        } => {
            let gutter = if *gutter { ", GUTTER" } else { "" };
            format!(
                "  = {summary}\n    {changed_lines} lines changed, loop score {loop_score:.2}{gutter}, {seconds:.1} s"
            )
        }
        EventKind::RunEnded { outcome, reason } => paint(
            if *outcome == RunEnd::Done { "1;32" } else { "1;33" },
            format!("{outcome}: {reason}"),
        ),
        kind => format!("  {}", detail(kind, &paint)),
    }
}

fn detail(kind: &EventKind, paint: &dyn Fn(&str, String) -> String) -> String {
    match kind {
        EventKind::Preflight { check, found } => match found {
            PreflightResult::Ready { detail } => format!("ready: {check}: {detail}"),
            PreflightResult::NotReady { why, next_step } => {
                paint("31", format!("NOT READY: {check}: {why}\n    next: {next_step}"))
            }
        },
        EventKind::ModelAnswered {
            model,
            tokens,
            cost_usd,
        } => {
            let tokens = tokens.map_or("unknown tokens".to_owned(), |tokens| format!("{tokens} tokens"));
            let cost = cost_usd.map_or("cost unknown".to_owned(), |cost| format!("${cost:.4}"));
            format!("{model} answered ({tokens}, {cost})")
        }
        EventKind::Action { what, failed: None } => format!("+ {what}"),
        EventKind::Action {
            what,
            failed: Some(reason),
        } => paint("33", format!("! {what}: {reason}")),
        EventKind::Output { text } => format!("| {text}"),
        EventKind::Checked {
            command,
            status,
            passed,
            clean,
        } => {
            let place = if *clean { "evidence" } else { "feedback" };
            paint(
                if *passed { "32" } else { "31" },
                format!("{place}: `{command}`: {status}"),
            )
        }
        EventKind::Ticked { checkbox } => paint("32", format!("[x] {checkbox}")),
        EventKind::NotTicked { checkbox, reason } => paint("31", format!("[ ] {checkbox}: {reason}")),
        EventKind::Ladder { rung, detail } => paint("33", format!("ladder: {rung}: {}", first_line(detail))),
        EventKind::Diagnosed { pattern } => paint("33", format!("diagnosis: {pattern}")),
        EventKind::Waiting { reason, until } => paint(
            "33",
            format!(
                "waiting until {}: {reason}",
                until.strftime("%Y-%m-%d %H:%M:%S UTC")
            ),
        ),
        EventKind::Warning { message } => paint("33", format!("warning: {message}")),
        EventKind::PullRequest { location, commit } => {
            paint("32", format!("pull request: {location} holds {commit}"))
        }
        EventKind::RunStarted { .. }
        | EventKind::RunResumed { .. }
        | EventKind::IterationStarted { .. }
        | EventKind::IterationEnded { .. }
        | EventKind::RunEnded { .. } => String::new(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_start_matches("### ")
}
