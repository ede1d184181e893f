//! What is kept of one iteration: the facts that later verdicts are made from.

use serde::{Deserialize, Serialize};

use crate::id::ObjectId;
use crate::usage::{Tokens, Usd};

/// One iteration, recorded once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IterationRecord {
    /// Its number, from 1.
    pub iteration: u32,
    /// The branch's tip at its end.
    pub tip: ObjectId,
    /// The tree of the clone at its end, uncommitted work included.
    pub tree: ObjectId,
    /// The model profile it ran with.
    pub profile: String,
    /// What the agent said it did.
    pub summary: String,
    /// How the agent left it, for people: `continue`, `rotate`, `pause`, `stop_success` and so on.
    pub ending: String,
    /// Commands that failed, each once.
    pub failures: Vec<CommandFailure>,
    /// Lines added and removed.
    pub changed_lines: u64,
    /// The files it changed and what they hold now.
    pub files: Vec<FileState>,
    /// Whether it added commits with a tree that the run had not had before.
    pub new_work_committed: bool,
    /// How the tests ended on this tree, where they ran.
    pub tests: Option<CheckResult>,
    /// Checkboxes ticked at its end, all of them.
    pub ticked: Vec<String>,
    /// Checkboxes it ticked newly.
    pub newly_ticked: Vec<String>,
    /// The evidence gathered in a clean checkout of the tip, in order.
    pub evidence: Vec<CheckResult>,
    /// What follows from it.
    pub verdict: IterationVerdict,
    /// How much it looks like going in circles.
    pub score: LoopScore,
    /// What was done about a gutter.
    pub rung: Option<Rung>,
    /// The profile of the next iteration.
    pub next_profile: String,
    /// Tokens it used.
    pub tokens: Tokens,
    /// What it cost, as far as known.
    pub cost: Usd,
    /// How long it took.
    pub milliseconds: u64,
}

/// What follows from an iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum IterationVerdict {
    /// Another iteration.
    GoOn,
    /// The evidence is complete: the pull request can be opened.
    Complete,
    /// The run fails.
    Failed {
        /// Why.
        reason: String,
    },
    /// The run waits for a person.
    Paused {
        /// Why.
        reason: String,
    },
}

/// A command that failed, in a form that recognises the same failure again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CommandFailure {
    /// The command.
    pub command: String,
    /// Its exit code, as a shell reports it.
    pub code: i32,
    /// A hash over command, code and the normalised beginning of its error output.
    pub signature: String,
}

/// What a file holds after an iteration; `None` when it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// The file.
    pub path: String,
    /// The hash of its content.
    pub content: Option<ObjectId>,
}

/// A command the runner itself ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    /// The command.
    pub command: String,
    /// Its exit code, as a shell reports it.
    pub code: i32,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// The commit it ran on, when it was evidence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<ObjectId>,
}

impl CheckResult {
    /// Whether it held.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.code == 0
    }
}

/// The loop score of an iteration and what it is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopScore {
    /// From 0 (fine) to 1 (going in circles).
    pub total: f64,
    /// Whether that is a gutter.
    pub gutter: bool,
    /// What spoke for and against it.
    pub signals: LoopSignals,
}

/// The signals a score is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent observations, each recorded by its name"
)]
pub struct LoopSignals {
    /// The same failure in at least three of the last five iterations.
    pub same_failure: bool,
    /// Three iterations in a row that changed next to nothing.
    pub empty_diff: bool,
    /// A file that went back and forth between two contents.
    pub flip_flop: bool,
    /// New work was committed.
    pub committed: bool,
    /// Tests that failed now pass.
    pub tests_pass_now: bool,
    /// A checkbox was verified.
    pub checkbox_verified: bool,
}

impl Rung {
    /// Its name in the configuration, in events and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rotate => "rotate",
            Self::Fallback => "fallback",
            Self::Doctor => "doctor",
            Self::Person => "person",
        }
    }
}

/// What is done about a gutter, from mild to strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rung {
    /// Say in the guardrails what was repeated and begin afresh.
    Rotate,
    /// Go on with the fallback profile.
    Fallback,
    /// Ask a strong model for a diagnosis.
    Doctor,
    /// Wait for a person.
    Person,
}
