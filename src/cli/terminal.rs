//! Prints the events of a run, as text or as JSON.

use crate::event::{Event, EventKind, EventSink, LineStyle, styled_line};
use crate::text::visible;

use super::Ui;
use super::activity::{self, RunActivity};
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
            // Other events say the same; on a terminal, the line at the bottom does.
            EventKind::EvidenceEnded { .. } | EventKind::StepStarted { .. } => false,
            EventKind::RunStarted { .. }
            | EventKind::RunResumed { .. }
            | EventKind::Preflight { .. }
            | EventKind::IterationStarted { .. }
            | EventKind::ModelAnswered { .. }
            | EventKind::Action { .. }
            | EventKind::Checked { .. }
            | EventKind::EvidenceStarted { .. }
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
        match activity::after(event) {
            Some(RunActivity::Works(what)) => activity::begin(what),
            Some(RunActivity::Ended) => activity::end(),
            None => {}
        }
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
        self.ui.say_styled(escape_code(style), &text, "");
    }
}

impl Drop for EventPrinter {
    /// The work on a run ends without an event if it goes back to the queue, or if another process has it.
    fn drop(&mut self) {
        activity::end();
    }
}

/// The escape code of a style.
fn escape_code(style: LineStyle) -> Option<&'static str> {
    match style {
        LineStyle::Plain => None,
        LineStyle::Heading => Some("1"),
        LineStyle::Bad => Some("31"),
        LineStyle::Good => Some("32"),
        LineStyle::Notice => Some("33"),
        LineStyle::GoodEnd => Some("1;32"),
        LineStyle::NoticeEnd => Some("1;33"),
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
    fn a_long_action_is_cut_to_the_terminal() {
        assert_eq!(fit("  + Bash: ls", 12), "  + Bash: ls");
        assert_eq!(fit("  + Bash: ls -l", 12), "  + Bash: l…");
        assert_eq!(fit("  + \x1b[2J", 9), "  + \\u00…");
    }
}
