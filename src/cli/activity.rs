//! The line at the bottom of a terminal that says what is going on, and for how long.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::event::{Event, EventKind};
use crate::text::{one_line, visible};

/// Shorter activities are not shown.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// How often the line is drawn again, and how often it is checked whether to show one.
const REDRAW: Duration = Duration::from_millis(500);

/// What this process does.
static ACTIVITY: Mutex<Option<Activity>> = Mutex::new(None);

/// Whether stderr is a terminal that can move the cursor (not with `TERM=dumb`). Starts the thread that shows the line there.
static HAS_LINE: LazyLock<bool> = LazyLock::new(|| {
    let has_line = !ProgressBar::new_spinner().is_hidden();
    if has_line {
        thread::spawn(|| {
            loop {
                thread::sleep(REDRAW);
                if let Some(activity) = &mut *activity() {
                    activity.show();
                }
            }
        });
    }
    has_line
});

struct Activity {
    what: String,
    since: Instant,
    /// The line, once it is shown.
    line: Option<ProgressBar>,
}

impl Activity {
    fn show(&mut self) {
        if self.line.is_none() && self.since.elapsed() >= SHOWN_AFTER {
            let style = ProgressStyle::with_template("{spinner} {elapsed:>3} {wide_msg}");
            let line = ProgressBar::new_spinner()
                .with_elapsed(self.since.elapsed())
                .with_message(visible(&one_line(&self.what)).into_owned());
            self.line = Some(line.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner())));
        }
        if let Some(line) = &self.line {
            line.tick();
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}

/// Shows this until [`end`], once it takes long, below everything that is printed through [`above`].
pub(super) fn begin(what: impl Into<String>) {
    if *HAS_LINE {
        let begun = Activity {
            what: what.into(),
            since: Instant::now(),
            line: None,
        };
        // The line of the one before is removed first.
        drop(activity().replace(begun));
    }
}

/// Removes the line.
pub(super) fn end() {
    drop(activity().take());
}

/// Removes the line, for progress that takes its place. Returns what it said, to be begun again afterwards.
pub(super) fn interrupt() -> Option<String> {
    let mut interrupted = activity().take()?;
    Some(std::mem::take(&mut interrupted.what))
}

/// Prints something while the line is removed.
pub(super) fn above<R>(print: impl FnOnce() -> R) -> R {
    if !*HAS_LINE {
        return print();
    }
    match activity().as_ref().and_then(|activity| activity.line.as_ref()) {
        Some(line) => line.suspend(print),
        None => print(),
    }
}

fn activity() -> MutexGuard<'static, Option<Activity>> {
    ACTIVITY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a run does after an event, in words; `None` if it goes on as before.
pub(super) fn after(event: &Event) -> Option<RunActivity> {
    let works = |what: &str| Some(RunActivity::Works(what.to_owned()));
    match &event.kind {
        EventKind::RunStarted { .. } | EventKind::RunResumed { .. } | EventKind::Preflight { .. } => {
            works("preparing the run: image, sandbox, clone")
        }
        EventKind::IterationStarted { profile } => {
            works(&format!("waiting for the model (profile {profile})"))
        }
        EventKind::ActionStarted { what } | EventKind::StepStarted { what } => works(what),
        // The session of a program is over.
        EventKind::ModelAnswered { seconds: None, .. } => works("reading the work"),
        EventKind::ModelAnswered { .. } | EventKind::Action { .. } => works("the agent works"),
        EventKind::EvidenceStarted { commands, .. } => works(&format!("evidence: {}", commands.join(", "))),
        EventKind::Checked { clean: false, .. }
        | EventKind::EvidenceEnded { .. }
        | EventKind::Diagnosed { .. }
        | EventKind::IterationEnded { .. } => works("recording the iteration"),
        EventKind::Waiting { reason, until } => {
            let longest = until.duration_since(event.at).try_into().unwrap_or_default();
            works(&format!("waiting for up to {}: {reason}", HumanDuration(longest)))
        }
        EventKind::RunEnded { .. } => Some(RunActivity::Ended),
        EventKind::Output { .. }
        | EventKind::Transcript { .. }
        | EventKind::Checked { .. }
        | EventKind::Ticked { .. }
        | EventKind::NotTicked { .. }
        | EventKind::LoopScored { .. }
        | EventKind::BudgetWarning { .. }
        | EventKind::Ladder { .. }
        | EventKind::Intervened { .. }
        | EventKind::Warning { .. }
        | EventKind::PullRequest { .. }
        | EventKind::CiFailed { .. } => None,
    }
}

/// What a run does.
pub(super) enum RunActivity {
    Works(String),
    Ended,
}
