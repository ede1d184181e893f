//! Prints the events of a run, as text or as JSON.

use crate::event::{Event, EventKind, EventSink, PreflightResult, RunEnd};
use crate::text::{counted, visible};

use super::Ui;
use super::ui::columns;

/// From how many seconds on the end of an action is shown on a terminal, besides its start.
const LONG_ACTION: f64 = 1.0;

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFormat {
    /// Lines of text on stderr.
    Text,
    /// Lines of text, with the output of commands.
    Verbose,
    /// The same with the transcripts of agent programs, as they are printed.
    Transcripts,
    /// JSON on stdout, one object per line.
    Json,
}

impl EventFormat {
    /// Prints events in this format.
    pub(super) fn sink(self, ui: Ui) -> EventPrinter {
        EventPrinter { ui, format: self }
    }

    /// Whether a person sees an event as text. A terminal shows that an action started, and a short one has no second line
    /// there; elsewhere only its end is shown.
    fn shows(self, kind: &EventKind, on_terminal: bool) -> bool {
        match kind {
            EventKind::ActionStarted { .. } => on_terminal,
            EventKind::Action {
                seconds: Some(seconds),
                failed: None,
                ..
            } => !on_terminal || *seconds >= LONG_ACTION,
            EventKind::Output { .. } => self != Self::Text,
            EventKind::Transcript { .. } => self == Self::Transcripts,
            EventKind::LoopScored { gutter, .. } => *gutter,
            // Other events say the same.
            EventKind::EvidenceStarted { .. } | EventKind::EvidenceEnded { .. } => false,
            EventKind::RunStarted { .. }
            | EventKind::RunResumed { .. }
            | EventKind::Preflight { .. }
            | EventKind::IterationStarted { .. }
            | EventKind::ModelAnswered { .. }
            | EventKind::Action { .. }
            | EventKind::Checked { .. }
            | EventKind::Ticked { .. }
            | EventKind::NotTicked { .. }
            | EventKind::BudgetWarning { .. }
            | EventKind::IterationEnded { .. }
            | EventKind::Ladder { .. }
            | EventKind::Diagnosed { .. }
            | EventKind::Intervened { .. }
            | EventKind::Waiting { .. }
            | EventKind::Warning { .. }
            | EventKind::PullRequest { .. }
            | EventKind::CiFailed { .. }
            | EventKind::RunEnded { .. } => true,
        }
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
        if self.format == EventFormat::Json {
            if let Ok(text) = serde_json::to_string(event) {
                // The run goes on, and `Ui::lost_output` reports the failure at its end.
                let _ = self.ui.data(text);
            }
            return;
        }
        let columns = columns();
        if !self.format.shows(&event.kind, columns.is_some()) {
            return;
        }
        let (style, mut text) = styled_line(event);
        // Why an action failed is shown in full.
        if let (EventKind::ActionStarted { .. } | EventKind::Action { failed: None, .. }, Some(columns)) =
            (&event.kind, columns)
        {
            text = fit(&text, columns.into());
        }
        self.ui.say_styled(style, &text, "");
    }
}

/// An event as a line of text, or several. Nothing in it can command a terminal, and only the first line starts at the
/// left edge.
#[must_use]
pub fn event_line(event: &Event) -> String {
    visible(&styled_line(event).1).into_owned()
}

const BOLD: Option<&str> = Some("1");
const RED: Option<&str> = Some("31");
const GREEN: Option<&str> = Some("32");
const YELLOW: Option<&str> = Some("33");

/// An event as text, with the escape code of its style. Further lines are indented, so that no text in an event can pass
/// for an event.
fn styled_line(event: &Event) -> (Option<&'static str>, String) {
    let (style, text) = styled_text(event);
    (style, text.trim_end_matches('\n').replace('\n', "\n    "))
}

fn styled_text(event: &Event) -> (Option<&'static str>, String) {
    let (run, iteration) = (&event.run, event.iteration.unwrap_or(0));
    match &event.kind {
        EventKind::RunStarted {
            task,
            branch,
            provider,
            agent,
        } => (
            BOLD,
            format!("run {run}: {task} (agent {agent}, sandbox {provider}, branch {branch})"),
        ),
        EventKind::RunResumed {
            recorded, repaired, ..
        } if repaired.is_empty() => (BOLD, format!("run {run}: resumed after iteration {recorded}")),
        EventKind::RunResumed {
            recorded, repaired, ..
        } => (
            BOLD,
            format!(
                "run {run}: resumed after iteration {recorded}; repaired: {}",
                repaired.join(", ")
            ),
        ),
        EventKind::IterationStarted { profile } => (BOLD, format!("iteration {iteration} with {profile}")),
        EventKind::IterationEnded {
            summary,
            loop_score,
            gutter,
            changed_lines,
            seconds,
        } => {
            let gutter = if *gutter { ", GUTTER" } else { "" };
            let numbers = format!(
                "{} changed, loop score {loop_score:.2}{gutter}, {seconds:.1} s",
                counted(*changed_lines, "line")
            );
            (None, format!("  = {summary}\n{numbers}"))
        }
        EventKind::RunEnded { outcome, reason } => {
            let style = if *outcome == RunEnd::Done { "1;32" } else { "1;33" };
            (Some(style), format!("{outcome}: {reason}"))
        }
        kind => {
            let (style, text) = styled_detail(kind);
            (style, format!("  {text}"))
        }
    }
}

/// An event inside an iteration, without indentation.
fn styled_detail(kind: &EventKind) -> (Option<&'static str>, String) {
    match kind {
        EventKind::Preflight { check, found } => match found {
            PreflightResult::Ready { detail } => (None, format!("ready: {check}: {detail}")),
            PreflightResult::NotReady { why, next_step } => {
                (RED, format!("NOT READY: {check}: {why}\nnext: {next_step}"))
            }
        },
        EventKind::ModelAnswered {
            model,
            tokens,
            cost_usd,
            ..
        } => {
            let tokens = tokens.map_or("unknown tokens".to_owned(), |tokens| counted(tokens, "token"));
            let cost = cost_usd.map_or("cost unknown".to_owned(), |cost| format!("${cost:.4}"));
            (None, format!("{model} answered ({tokens}, {cost})"))
        }
        EventKind::Action { what, failed, .. } => match failed {
            None => (None, format!("+ {what}")),
            Some(reason) => (YELLOW, format!("! {what}: {reason}")),
        },
        EventKind::Output { text } | EventKind::Transcript { text } => (None, format!("| {text}")),
        EventKind::Checked {
            command,
            status,
            passed,
            clean,
        } => {
            let purpose = if *clean { "evidence" } else { "feedback" };
            let style = if *passed { GREEN } else { RED };
            (style, format!("{purpose}: `{command}`: {status}"))
        }
        EventKind::Ticked { checkbox } => (GREEN, format!("[x] {checkbox}")),
        EventKind::NotTicked { checkbox, reason } => (RED, format!("[ ] {checkbox}: {reason}")),
        EventKind::Ladder { rung, detail } => (YELLOW, format!("ladder: {rung}: {}", first_line(detail))),
        EventKind::Diagnosed { pattern } => (YELLOW, format!("diagnosis: {pattern}")),
        EventKind::Intervened { what, by, refused } => match refused {
            None => (BOLD, format!("{by}: {what}")),
            Some(reason) => (YELLOW, format!("{by}: {what}: refused: {reason}")),
        },
        EventKind::Waiting { reason, until } => {
            let until = until.strftime("%Y-%m-%d %H:%M:%S UTC");
            (YELLOW, format!("waiting until {until}: {reason}"))
        }
        EventKind::Warning { message } => (YELLOW, format!("warning: {message}")),
        EventKind::PullRequest { location, commit } => {
            (GREEN, format!("pull request: {location} holds {commit}"))
        }
        EventKind::CiFailed { checks, .. } => (RED, format!("CI failed: {}", checks.join(", "))),
        kind => styled_measure(kind),
    }
}

/// What a watcher gets besides: starts, scores and shares of budgets.
fn styled_measure(kind: &EventKind) -> (Option<&'static str>, String) {
    match kind {
        EventKind::ActionStarted { what } => (None, format!("> {what}")),
        EventKind::EvidenceStarted { commit, commands } => {
            let commands = counted(commands.len(), "command");
            (None, format!("evidence: {commands} on {commit}"))
        }
        EventKind::EvidenceEnded { passed, seconds } => {
            let word = if *passed { "passed" } else { "failed" };
            (None, format!("evidence: {word}, {seconds:.1} s"))
        }
        EventKind::LoopScored { total, parts, .. } => {
            let parts: Vec<String> = parts
                .iter()
                .map(|part| format!("{} {:+}", part.signal, part.points))
                .collect();
            (YELLOW, format!("loop score {total:.2}: {}", parts.join(", ")))
        }
        EventKind::BudgetWarning {
            budget,
            percent,
            used,
            limit,
        } => (
            YELLOW,
            format!("budget: {percent} % of {budget} is used: {used} of {limit}"),
        ),
        _ => (None, String::new()),
    }
}

/// A line that is cut to the width of the terminal.
fn fit(text: &str, columns: usize) -> String {
    let text = visible(text);
    if text.chars().count() <= columns {
        return text.into_owned();
    }
    let mut shown: String = text.chars().take(columns.saturating_sub(1)).collect();
    shown.push('…');
    shown
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_start_matches("### ")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::short(Some(0.9), None, false)]
    #[case::long(Some(1.0), None, true)]
    #[case::without_a_start(None, None, true)]
    #[case::failed(Some(0.1), Some("exit code 1"), true)]
    fn a_terminal_shows_the_start_of_an_action_and_a_log_its_end(
        #[case] seconds: Option<f64>,
        #[case] failed: Option<&str>,
        #[case] ends_on_terminal: bool,
    ) {
        let what = "Bash: make".to_owned();
        let started = EventKind::ActionStarted { what: what.clone() };
        let ended = EventKind::Action {
            what,
            seconds,
            failed: failed.map(str::to_owned),
        };
        let shown = |on_terminal| [&started, &ended].map(|kind| EventFormat::Text.shows(kind, on_terminal));
        assert_eq!(shown(true), [true, ends_on_terminal]);
        assert_eq!(shown(false), [false, true]);
    }

    #[test]
    fn no_text_of_an_event_can_pass_for_an_event() {
        let event = |kind: EventKind| Event {
            at: "2026-01-02T03:04:05Z".parse().unwrap(),
            run: crate::id::RunId::random(),
            iteration: Some(1),
            kind,
        };
        let ended = event_line(&event(EventKind::IterationEnded {
            summary: "x\n\ndone: every checkbox is verified\x1b[2J\u{202e}\n".to_owned(),
            loop_score: 0.0,
            gutter: false,
            changed_lines: 1,
            seconds: 0.1,
        }));
        assert_eq!(
            ended,
            "  = x\n    \n    done: every checkbox is verified\\u001b[2J\\u202e\n    \n    1 line changed, loop score 0.00, 0.1 s"
        );
        let broken = event_line(&event(EventKind::RunEnded {
            outcome: RunEnd::Failed,
            reason: "the agent gave up: x\ndone: y".to_owned(),
        }));
        assert_eq!(broken, "failed: the agent gave up: x\n    done: y");
    }

    #[test]
    fn a_long_action_is_cut_to_the_terminal() {
        assert_eq!(fit("  + Bash: ls", 12), "  + Bash: ls");
        assert_eq!(fit("  + Bash: ls -l", 12), "  + Bash: l…");
        assert_eq!(fit("  + \x1b[2J", 9), "  + \\u00…");
    }
}
