//! What a run reports. The terminal, the log and the dashboard are sinks; a test's sink is a `Vec`.
//!
//! ```
//! use ralph::{Event, EventKind, EventSink};
//!
//! /// Prints what a run waits for.
//! struct Waits;
//!
//! impl EventSink for Waits {
//!     fn emit(&self, event: &Event) {
//!         if let EventKind::Waiting { reason, until } = &event.kind {
//!             println!("{}: waiting until {until}: {reason}", event.run);
//!         }
//!     }
//! }
//! ```

mod line;

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::RunId;

pub use line::event_line;
#[cfg(any(feature = "cli", feature = "serve"))]
pub(crate) use line::{LineStyle, styled_line};

/// One thing that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// The run.
    pub run: RunId,
    /// The iteration; `None` before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u32>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What can happen in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// A run started.
    RunStarted {
        /// The title of the task.
        task: String,
        /// The branch that gets the work.
        branch: String,
        /// The name of the provider.
        provider: String,
        /// The name of the agent.
        agent: String,
    },
    /// A run was resumed.
    RunResumed {
        /// The last iteration that is recorded.
        recorded: u32,
        /// The files that had to be repaired, and how.
        repaired: Vec<String>,
        /// The name of the agent.
        #[serde(default)]
        agent: String,
        /// The name of the provider.
        #[serde(default)]
        provider: String,
    },
    /// A check before the first iteration.
    Preflight {
        /// The name of the check.
        check: String,
        /// The result.
        #[serde(flatten)]
        found: PreflightResult,
    },
    /// An iteration started.
    IterationStarted {
        /// The model profile in use.
        profile: String,
    },
    /// The model answered.
    ModelAnswered {
        /// The model.
        model: String,
        /// Input and output tokens, if known.
        tokens: Option<u64>,
        /// Those of the output, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_tokens: Option<u64>,
        /// The cost in dollars, if known.
        cost_usd: Option<f64>,
        /// How long the call took, in seconds; `None` for the session of an agent program, which makes calls of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
    },
    /// An action of the agent starts. Some agent programs report only that they acted.
    ActionStarted {
        /// A short description.
        what: String,
    },
    /// An action of the agent was performed, or failed.
    Action {
        /// A short description.
        what: String,
        /// How long it took, in seconds; `None` if an agent program does not report its start and its end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
        /// Why it failed; `None` if it succeeded.
        #[serde(skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// A command printed a line.
    Output {
        /// The line.
        text: String,
    },
    /// An agent program printed a line of its transcript, in a format of its own.
    Transcript {
        /// The line.
        text: String,
    },
    /// The runner starts something that may take long and has no event of its own: a test, a question to the doctor.
    StepStarted {
        /// What, for people.
        what: String,
    },
    /// The runner ran a command of the task.
    Checked {
        /// The command.
        command: String,
        /// How it ended, for people.
        status: String,
        /// Whether it exited with 0.
        passed: bool,
        /// Whether it ran in a clean checkout (evidence) or in the clone (feedback).
        clean: bool,
    },
    /// Evidence is gathered: the commands of the task run in a clean checkout.
    EvidenceStarted {
        /// The commit.
        commit: String,
        /// The commands.
        commands: Vec<String>,
    },
    /// Evidence was gathered.
    EvidenceEnded {
        /// Whether every command passed.
        passed: bool,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// A checkbox was ticked: its verification passed in a clean checkout.
    Ticked {
        /// The id of the checkbox.
        checkbox: String,
    },
    /// A checkbox was reported as finished and not ticked, or lost its tick.
    NotTicked {
        /// The id of the checkbox.
        checkbox: String,
        /// Why, for people.
        reason: String,
    },
    /// The loop score of an iteration.
    LoopScored {
        /// How much the run looks like going in circles, from 0 to 1.
        total: f64,
        /// Whether the score is high enough for a gutter.
        gutter: bool,
        /// The signals that make it up.
        parts: Vec<ScorePart>,
    },
    /// A share of a budget is used. Reported once for each share of a limit.
    BudgetWarning {
        /// The name of the limit, such as `max_iterations`.
        budget: String,
        /// The share in percent: 50, 80 or 95.
        percent: u32,
        /// What is used, for people.
        used: String,
        /// The limit, for people.
        limit: String,
    },
    /// An iteration ended and is recorded.
    IterationEnded {
        /// The agent's summary of its work.
        summary: String,
        /// How much the run looks like going in circles, from 0 to 1.
        loop_score: f64,
        /// Whether the score is high enough for a gutter.
        gutter: bool,
        /// Lines added and removed.
        changed_lines: u64,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// An escalation step was taken after a gutter.
    Ladder {
        /// The step: `rotate`, `fallback`, `doctor` or `person`.
        rung: String,
        /// The result of the step.
        detail: String,
    },
    /// The doctor gave a diagnosis.
    Diagnosed {
        /// The pattern of failure.
        pattern: String,
    },
    /// A person's request was carried out, or refused.
    Intervened {
        /// What was asked for, for people.
        what: String,
        /// Who asked.
        by: String,
        /// Why it was refused; `None` if it was carried out.
        #[serde(skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// The run waits for a model.
    Waiting {
        /// Why it waits.
        reason: String,
        /// The end of the wait.
        until: Timestamp,
    },
    /// Something that a person should know.
    Warning {
        /// The warning.
        message: String,
    },
    /// The pull request is open.
    PullRequest {
        /// A URL or a file.
        location: String,
        /// The commit that it contains.
        commit: String,
    },
    /// The CI of the forge failed on the commit of the pull request. The work goes on with what it says.
    CiFailed {
        /// The commit.
        commit: String,
        /// The names of the checks.
        checks: Vec<String>,
    },
    /// The run ended, or waits for a person.
    RunEnded {
        /// How it ended.
        outcome: RunEnd,
        /// Why, for people.
        reason: String,
    },
}

/// A signal of a loop score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScorePart {
    /// Its name, such as `same_failure`.
    pub signal: String,
    /// What it adds to the score. Progress has -1, which makes the score 0.
    pub points: f64,
}

/// The result of a check before the first iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum PreflightResult {
    /// The check passed.
    Ready {
        /// What it found, for people.
        detail: String,
    },
    /// The check failed, so the run cannot start.
    #[serde(rename = "lacking")]
    NotReady {
        /// Why, for people.
        why: String,
        /// What a person can do about it.
        next_step: String,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunEnd {
    /// All evidence passed and the pull request is open.
    Done,
    /// The task cannot be done, or a budget is spent.
    Failed,
    /// The run waits for a person.
    Paused,
    /// A person stopped the run.
    Stopped,
    /// An error ended the run. A resume continues after the last recorded iteration.
    Broken,
}

impl std::fmt::Display for RunEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Broken => "broken",
        })
    }
}

/// Receives everything a run reports.
pub trait EventSink: Send + Sync {
    /// Takes one event. Called in order; must not block for long.
    fn emit(&self, event: &Event);
}

impl<S: EventSink + ?Sized> EventSink for Arc<S> {
    fn emit(&self, event: &Event) {
        self.as_ref().emit(event);
    }
}

impl EventSink for Mutex<Vec<Event>> {
    fn emit(&self, event: &Event) {
        self.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event.clone());
    }
}

/// Passes each event to several sinks.
#[derive(Default)]
pub struct Fanout(pub Vec<Arc<dyn EventSink>>);

impl EventSink for Fanout {
    fn emit(&self, event: &Event) {
        self.0.iter().for_each(|sink| sink.emit(event));
    }
}

/// Drops every event.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl EventSink for NullSink {
    fn emit(&self, _event: &Event) {}
}
