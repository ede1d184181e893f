//! Events as lines of text, for a terminal, a log and a page.

use crate::text::{counted, visible};

use super::{Event, EventKind, PreflightResult, RunEnd};

/// How a line stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LineStyle {
    Plain,
    /// A run or an iteration starts, or a person acts.
    Heading,
    Good,
    Bad,
    Notice,
    /// The run ended well.
    GoodEnd,
    /// The run ended in another way.
    NoticeEnd,
}

/// An event as a line of text, or several. Nothing in it can command a terminal, and only the first line starts at the
/// left edge.
#[must_use]
pub fn event_line(event: &Event) -> String {
    visible(&styled_line(event).1).into_owned()
}

/// An event as text, with its style. Further lines are indented, so that no text in an event can pass
/// for an event.
pub(crate) fn styled_line(event: &Event) -> (LineStyle, String) {
    let (style, text) = styled_text(event);
    (style, text.trim_end_matches('\n').replace('\n', "\n    "))
}

fn styled_text(event: &Event) -> (LineStyle, String) {
    let (run, iteration) = (&event.run, event.iteration.unwrap_or(0));
    match &event.kind {
        EventKind::RunStarted {
            task,
            branch,
            provider,
            agent,
        } => (
            LineStyle::Heading,
            format!("run {run}: {task} (agent {agent}, sandbox {provider}, branch {branch})"),
        ),
        EventKind::RunResumed {
            recorded, repaired, ..
        } if repaired.is_empty() => (
            LineStyle::Heading,
            format!("run {run}: resumed after iteration {recorded}"),
        ),
        EventKind::RunResumed {
            recorded, repaired, ..
        } => (
            LineStyle::Heading,
            format!(
                "run {run}: resumed after iteration {recorded}; repaired: {}",
                repaired.join(", ")
            ),
        ),
        EventKind::IterationStarted { profile } => (
            LineStyle::Heading,
            format!("iteration {iteration} with {profile}"),
        ),
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
            (LineStyle::Plain, format!("  = {summary}\n{numbers}"))
        }
        EventKind::RunEnded { outcome, reason } => {
            let is_done = *outcome == RunEnd::Done;
            let style = if is_done {
                LineStyle::GoodEnd
            } else {
                LineStyle::NoticeEnd
            };
            (style, format!("{outcome}: {reason}"))
        }
        kind => {
            let (style, text) = styled_detail(kind);
            (style, format!("  {text}"))
        }
    }
}

/// An event inside an iteration, without indentation.
fn styled_detail(kind: &EventKind) -> (LineStyle, String) {
    match kind {
        EventKind::Preflight { check, found } => match found {
            PreflightResult::Ready { detail } => (LineStyle::Plain, format!("ready: {check}: {detail}")),
            PreflightResult::NotReady { why, next_step } => (
                LineStyle::Bad,
                format!("NOT READY: {check}: {why}\nnext: {next_step}"),
            ),
        },
        EventKind::ModelAnswered {
            model,
            tokens,
            cost_usd,
            ..
        } => {
            let tokens = tokens.map_or("unknown tokens".to_owned(), |tokens| counted(tokens, "token"));
            let cost = cost_usd.map_or("cost unknown".to_owned(), |cost| format!("${cost:.4}"));
            (LineStyle::Plain, format!("{model} answered ({tokens}, {cost})"))
        }
        EventKind::Action { what, failed, .. } => match failed {
            None => (LineStyle::Plain, format!("+ {what}")),
            Some(reason) => (LineStyle::Notice, format!("! {what}: {reason}")),
        },
        EventKind::Output { text } | EventKind::Transcript { text } => {
            (LineStyle::Plain, format!("| {text}"))
        }
        EventKind::Checked {
            command,
            status,
            passed,
            clean,
        } => {
            let purpose = if *clean { "evidence" } else { "feedback" };
            let style = if *passed { LineStyle::Good } else { LineStyle::Bad };
            (style, format!("{purpose}: `{command}`: {status}"))
        }
        EventKind::Ticked { checkbox } => (LineStyle::Good, format!("[x] {checkbox}")),
        EventKind::NotTicked { checkbox, reason } => (LineStyle::Bad, format!("[ ] {checkbox}: {reason}")),
        EventKind::Ladder { rung, detail } => (
            LineStyle::Notice,
            format!("ladder: {rung}: {}", first_line(detail)),
        ),
        EventKind::Diagnosed { pattern } => (LineStyle::Notice, format!("diagnosis: {pattern}")),
        EventKind::Intervened { what, by, refused } => match refused {
            None => (LineStyle::Heading, format!("{by}: {what}")),
            Some(reason) => (LineStyle::Notice, format!("{by}: {what}: refused: {reason}")),
        },
        EventKind::Waiting { reason, until } => {
            let until = until.strftime("%Y-%m-%d %H:%M:%S UTC");
            (LineStyle::Notice, format!("waiting until {until}: {reason}"))
        }
        EventKind::Warning { message } => (LineStyle::Notice, format!("warning: {message}")),
        EventKind::PullRequest { location, commit } => (
            LineStyle::Good,
            format!("pull request: {location} holds {commit}"),
        ),
        EventKind::CiFailed { checks, .. } => (LineStyle::Bad, format!("CI failed: {}", checks.join(", "))),
        kind => styled_measure(kind),
    }
}

/// What a watcher gets besides: starts, scores and shares of budgets.
fn styled_measure(kind: &EventKind) -> (LineStyle, String) {
    match kind {
        EventKind::ActionStarted { what } | EventKind::StepStarted { what } => {
            (LineStyle::Plain, format!("> {what}"))
        }
        EventKind::EvidenceStarted { commit, commands } => {
            let commands = counted(commands.len(), "command");
            (LineStyle::Plain, format!("evidence: {commands} on {commit}"))
        }
        EventKind::EvidenceEnded { passed, seconds } => {
            let word = if *passed { "passed" } else { "failed" };
            (LineStyle::Plain, format!("evidence: {word}, {seconds:.1} s"))
        }
        EventKind::LoopScored { total, parts, .. } => {
            let parts: Vec<String> = parts
                .iter()
                .map(|part| format!("{} {:+}", part.signal, part.points))
                .collect();
            (
                LineStyle::Notice,
                format!("loop score {total:.2}: {}", parts.join(", ")),
            )
        }
        EventKind::BudgetWarning {
            budget,
            percent,
            used,
            limit,
        } => (
            LineStyle::Notice,
            format!("budget: {percent} % of {budget} is used: {used} of {limit}"),
        ),
        _ => (LineStyle::Plain, String::new()),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_start_matches("### ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
