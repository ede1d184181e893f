//! What holds in every history: the terminal, the record and the pull request say the same, and none of them holds a
//! character that a terminal would obey.

use std::fs;

use ralph::event::EventKind;
use ralph::runner::RunOutcome;
use ralph::state::{IterationRecord, IterationVerdict, JournalEntry, RunOutcomeKind};

use crate::ci;
use crate::stage::Played;

/// The reason of a run that is resumed after it was done: the record keeps the reason of the first time.
const ALREADY_DONE: &str = "the run was already done";
/// The first words of the line that ends a run.
const VERDICTS: [&str; 5] = ["done: ", "failed: ", "paused: ", "stopped: ", "broken: "];

/// Every disagreement.
pub fn wrong(played: &Played, outcome: &RunOutcome) -> Vec<String> {
    let mut wrong = terminal_disagrees(played, outcome);
    wrong.extend(record_disagrees(played, outcome));
    let text = fs::read_to_string(played.run.pull_request_file()).ok();
    // Whether there is one at all is checked with what the history expects of it.
    if let (Some(text), Some(last)) = (text, played.records.last()) {
        wrong.extend(pull_request_disagrees(&text, last, outcome));
    }
    wrong
}

/// What a person sees who watches the act.
pub fn terminal(played: &Played) -> String {
    let shown = |kind: &EventKind| !matches!(kind, EventKind::Output { .. } | EventKind::Transcript { .. });
    let events = played.events.iter().filter(|event| shown(&event.kind));
    events
        .map(ralph::event::event_line)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The terminal shows one verdict, at the end, and it is that of the run.
fn terminal_disagrees(played: &Played, outcome: &RunOutcome) -> Vec<String> {
    let shown = terminal(played);
    let is_verdict = |line: &&str| VERDICTS.iter().any(|word| line.starts_with(word));
    let verdicts: Vec<&str> = shown.lines().filter(is_verdict).collect();
    let expected = format!("{}: {}", outcome.kind, outcome.reason);
    let first = visible(expected.lines().next().unwrap_or_default());
    let mut wrong = Vec::new();
    if verdicts != [first.as_str()] {
        wrong.push(format!("the terminal shows {verdicts:?} for {expected:?}"));
    }
    let last = played.events.last().map(|event| &event.kind);
    if !matches!(last, Some(EventKind::RunEnded { .. })) {
        wrong.push(format!("the terminal does not end with the verdict: {last:?}"));
    }
    wrong.extend(obeyed("the terminal", &shown));
    wrong
}

/// The journal ends with the outcome, and the verdict on the last iteration of this act leads to it.
fn record_disagrees(played: &Played, outcome: &RunOutcome) -> Vec<String> {
    let mut wrong = Vec::new();
    let journal = played.run.journal().unwrap();
    let ended = journal.iter().rev().find_map(|line| match &line.entry {
        JournalEntry::Ended { outcome, reason } => Some((*outcome, reason)),
        _ => None,
    });
    let agrees = |(kind, reason): (RunOutcomeKind, &String)| {
        kind == outcome.kind && (*reason == outcome.reason || outcome.reason == ALREADY_DONE)
    };
    if !ended.is_some_and(agrees) {
        wrong.push(format!(
            "the journal ends with {ended:?}, the run with {outcome:?}"
        ));
    }
    if played.records.len() != outcome.used.iterations as usize {
        let recorded = played.records.len();
        wrong.push(format!("{recorded} iterations are recorded: {outcome:?}"));
    }
    let Some(last) = played.records.last() else {
        return wrong;
    };
    let in_this_act = played.events.iter().any(|event| {
        event.iteration == Some(last.iteration) && matches!(event.kind, EventKind::IterationEnded { .. })
    });
    let agrees = match &last.verdict {
        IterationVerdict::Complete => outcome.kind == RunOutcomeKind::Done || ci::has_paused(outcome),
        _ if outcome.kind == RunOutcomeKind::Done => false,
        IterationVerdict::Failed { reason } if in_this_act => {
            outcome.kind == RunOutcomeKind::Failed && outcome.reason.starts_with(reason)
        }
        IterationVerdict::Paused { reason } if in_this_act => {
            outcome.kind == RunOutcomeKind::Paused && outcome.reason.starts_with(reason)
        }
        _ => true,
    };
    if !agrees {
        wrong.push(format!("the last record says {:?}: {outcome:?}", last.verdict));
    }
    wrong
}

/// The pull request shows the evidence of the last record, its boxes, and what a reviewer has to look at.
fn pull_request_disagrees(text: &str, last: &IterationRecord, outcome: &RunOutcome) -> Vec<String> {
    let mut parts = vec![
        outcome.run.to_string(),
        outcome.branch.clone(),
        outcome.tip.to_string(),
    ];
    parts.push(match outcome.used.iterations {
        1 => "1 iteration,".to_owned(),
        count => format!("{count} iterations,"),
    });
    for check in &last.evidence {
        let commit = check.commit.as_ref().unwrap().to_string();
        parts.push(visible(&check.command).replace('|', "\\|"));
        parts.push(format!("` | {} | `{}` | ", check.code, &commit[..12]));
    }
    parts.push(format!("**Verified: {0} of {0} checkbox", last.ticked.len()));
    parts.extend(last.ticked.iter().map(|id| format!("\n| {id} ")));
    parts.extend(last.weakened.iter().map(|found| visible(&found.path)));
    parts.extend(last.flaky.iter().map(|found| visible(&found.command)));
    let mut wrong: Vec<String> = parts
        .iter()
        .filter(|part| !text.contains(part.as_str()))
        .map(|part| format!("the pull request does not have {part:?}:\n{text}"))
        .collect();
    let first = text.lines().find(|line| line.starts_with("## "));
    if !last.weakened.is_empty() && first != Some("## Look at these first") {
        wrong.push("weakened checks are not shown first".to_owned());
    }
    if text.contains("- [ ] ") {
        wrong.push(format!("the pull request has an open box:\n{text}"));
    }
    wrong.extend(obeyed("the pull request", text));
    wrong
}

/// A character that a terminal would obey, if there is one.
fn obeyed(what: &str, text: &str) -> Option<String> {
    let found = text.chars().find(|c| is_obeyed(*c))?;
    Some(format!("{what} has {found:?}"))
}

fn is_obeyed(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    }
}

/// The text with such characters written out.
fn visible(text: &str) -> String {
    let shown = |c: char| {
        if is_obeyed(c) {
            format!("\\u{:04x}", u32::from(c))
        } else {
            c.to_string()
        }
    };
    text.chars().map(shown).collect()
}
