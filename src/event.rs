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

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::RunId;

/// One thing that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// In which run.
    pub run: RunId,
    /// In which iteration, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u32>,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What can happen in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// A run began.
    RunStarted {
        /// The task's title.
        task: String,
        /// The branch the work goes to.
        branch: String,
        /// The provider's name.
        provider: String,
        /// The agent's name.
        agent: String,
    },
    /// An earlier run goes on.
    RunResumed {
        /// The last iteration that is recorded.
        recorded: u32,
        /// What had to be mended.
        repaired: Vec<String>,
    },
    /// Something that the run needs was looked at, before its first iteration.
    Preflight {
        /// What.
        check: String,
        /// How it was found.
        #[serde(flatten)]
        found: PreflightResult,
    },
    /// A fresh session begins.
    IterationStarted {
        /// The model profile in use.
        profile: String,
    },
    /// The model answered.
    ModelAnswered {
        /// The model.
        model: String,
        /// Tokens in and out, where known.
        tokens: Option<u64>,
        /// Dollars, where known.
        cost_usd: Option<f64>,
    },
    /// An action of the agent was performed, or failed.
    Action {
        /// A short description.
        what: String,
        /// Why it failed; absent when it did not.
        #[serde(skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// A command printed a line.
    Output {
        /// The line.
        text: String,
    },
    /// The runner ran a command of the task's.
    Checked {
        /// The command.
        command: String,
        /// How it ended, for people.
        status: String,
        /// Whether it held.
        passed: bool,
        /// Whether it ran in a clean checkout (evidence) or in the clone (feedback).
        clean: bool,
    },
    /// A checkbox was ticked: its verification held in a clean checkout.
    Ticked {
        /// Its id.
        checkbox: String,
    },
    /// A checkbox was claimed and not ticked, or lost its tick.
    NotTicked {
        /// Its id.
        checkbox: String,
        /// Why.
        reason: String,
    },
    /// An iteration is recorded.
    IterationEnded {
        /// What the agent said it did.
        summary: String,
        /// How much it looks like going in circles, from 0 to 1.
        loop_score: f64,
        /// Whether that is a gutter.
        gutter: bool,
        /// Lines added and removed.
        changed_lines: u64,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// Something was done about a gutter.
    Ladder {
        /// Which rung: `rotate`, `fallback`, `doctor` or `person`.
        rung: String,
        /// What it led to.
        detail: String,
    },
    /// The doctor gave a diagnosis.
    Diagnosed {
        /// The pattern of failure that was seen.
        pattern: String,
    },
    /// The run waits by itself.
    Waiting {
        /// Why.
        reason: String,
        /// Until when.
        until: Timestamp,
    },
    /// A person should know.
    Warning {
        /// What.
        message: String,
    },
    /// The pull request is open.
    PullRequest {
        /// Where.
        location: String,
        /// The commit it holds.
        commit: String,
    },
    /// The run is over, or waits for a person.
    RunEnded {
        /// How.
        outcome: RunEnd,
        /// Why.
        reason: String,
    },
}

/// How something that a run needs was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum PreflightResult {
    /// As it must be.
    Ready {
        /// What was seen.
        detail: String,
    },
    /// Not so that anything could begin.
    #[serde(rename = "lacking")]
    NotReady {
        /// Why.
        why: String,
        /// What a person can do about it.
        next_step: String,
    },
}

/// How a run ended, for this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunEnd {
    /// All evidence holds and the pull request is open.
    Done,
    /// It cannot be done, or a budget is spent.
    Failed,
    /// It waits for a person.
    Paused,
    /// A person stopped it.
    Stopped,
    /// Something broke; a resume goes on from the last iteration.
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

/// Takes every event and keeps none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl EventSink for NullSink {
    fn emit(&self, _event: &Event) {}
}
