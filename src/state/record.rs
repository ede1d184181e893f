//! The record of an iteration: the facts that later verdicts are based on.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::ObjectId;
use crate::usage::{Tokens, Usd};

/// The record of an iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IterationRecord {
    /// The number of the iteration, from 1.
    pub iteration: u32,
    /// The tip of the branch at its end.
    pub tip: ObjectId,
    /// The tree of the clone at its end, with uncommitted work.
    pub tree: ObjectId,
    /// The model profile it ran with.
    pub profile: String,
    /// The agent of that profile.
    #[serde(default)]
    pub agent: String,
    /// The model that the agent used, for people.
    #[serde(default)]
    pub model: String,
    /// The agent's summary of its work.
    pub summary: String,
    /// How the agent ended it, for people: `continue`, `rotate`, `pause`, `stop_success` and so on.
    pub ending: String,
    /// Commands that failed, each once.
    pub failures: Vec<CommandFailure>,
    /// Lines added and removed.
    pub changed_lines: u64,
    /// The files it changed, and their contents now.
    pub files: Vec<FileState>,
    /// Whether it added commits that change files, with a tree that is new in this run.
    pub new_work_committed: bool,
    /// Whether it prepared work without changing files: it left notes or ran commands, and committed nothing.
    #[serde(default)]
    pub planned: bool,
    /// The result of the tests on this tree, if they ran.
    pub tests: Option<CheckResult>,
    /// All checkboxes that are ticked at its end.
    pub ticked: Vec<String>,
    /// The checkboxes that it ticked.
    pub newly_ticked: Vec<String>,
    /// The evidence gathered in a clean checkout of the tip, in order.
    pub evidence: Vec<CheckResult>,
    /// Whether the evidence commands ran in a sandbox of their own, to which the agent had no access.
    #[serde(default)]
    pub evidence_apart: bool,
    /// What the evidence commands shared with the agent, for people.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub evidence_shares: Vec<String>,
    /// Commands of complete evidence that failed before on the same files.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub flaky: Vec<FlakyCheck>,
    /// Changes since the base that weaken checks, once the evidence is complete.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub weakened: Vec<WeakenedCheck>,
    /// What the agent left uncommitted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub uncommitted: Option<UncommittedWork>,
    /// How the run goes on.
    pub verdict: IterationVerdict,
    /// How much the run looks like going in circles.
    pub score: LoopScore,
    /// The escalation step that was taken, after a gutter.
    pub rung: Option<Rung>,
    /// The profile of the next iteration.
    pub next_profile: String,
    /// The tokens it used.
    pub tokens: Tokens,
    /// The cost of all calls whose price is known.
    pub cost: Usd,
    /// How long it took, in milliseconds.
    pub milliseconds: u64,
}

impl IterationRecord {
    /// Makes the run fail after this iteration.
    pub(crate) fn fail(&mut self, reason: String) {
        self.verdict = IterationVerdict::Failed { reason };
    }

    /// Makes the run pause for a person after this iteration.
    pub(crate) fn pause(&mut self, reason: String) {
        self.verdict = IterationVerdict::Paused { reason };
    }
}

/// What the runner decides about an iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum IterationVerdict {
    /// Another iteration.
    GoOn,
    /// The evidence is complete: the pull request can be opened.
    Complete,
    /// The run has failed.
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

/// A failed command, with a signature that is the same for the same failure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CommandFailure {
    /// The command.
    pub command: String,
    /// Its exit code, as a shell reports it.
    pub code: i32,
    /// A hash of the command, the code, and the failing tests or the output without noise.
    pub signature: String,
    /// The failing tests, where the output names them; at most 100.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tests: Vec<String>,
}

/// A file that an iteration changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// The path of the file.
    pub path: String,
    /// The hash of its content; `None` when the file was removed.
    pub content: Option<ObjectId>,
}

/// The result of a command that the runner itself ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    /// The command.
    pub command: String,
    /// Its exit code, as a shell reports it.
    pub code: i32,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<Timestamp>,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// The commit it ran on, if it is evidence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<ObjectId>,
}

impl CheckResult {
    /// Whether the command exited with 0.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.code == 0
    }
}

/// Files that an agent left uncommitted at the end of an iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncommittedWork {
    /// The first of them, for people.
    pub files: Vec<String>,
    /// How many there are.
    pub count: u64,
    /// The commit that the runner made of them. `None` if they stayed uncommitted, so that evidence did not see them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<ObjectId>,
}

/// A command that passed, and failed before on the same files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlakyCheck {
    /// The command.
    pub command: String,
    /// The exit code when it failed.
    pub code: i32,
    /// The iteration in which it failed.
    pub iteration: u32,
    /// The commit on which it failed.
    pub commit: ObjectId,
}

/// A change since the base that weakens a check, or may do so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WeakenedCheck {
    /// What was done.
    pub kind: WeakeningKind,
    /// The file.
    pub path: String,
    /// What exactly, for people.
    pub detail: String,
    /// The command of the task that it belongs to; `None` for the test command.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
    /// The names of the tests, where they are known.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tests: Vec<String>,
    /// Whether that command, or one of these tests, passed on the base commit, if it ran there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub green_at_base: Option<bool>,
}

/// How a check is weakened, the most telling first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeakeningKind {
    /// A test is gone.
    Deleted,
    /// A test does not run any more.
    Skipped,
    /// A test asserts less.
    Weakened,
    /// A failure may not reach the exit code.
    ExitHandling,
    /// A threshold is lower.
    Threshold,
    /// A script, target or settings file that runs the tests is not what it was.
    Runner,
    /// A test was edited in another way.
    Edited,
}

/// The loop score of an iteration, and its signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopScore {
    /// From 0 (fine) to 1 (going in circles).
    pub total: f64,
    /// Whether the total is high enough for a gutter.
    pub gutter: bool,
    /// The signals for and against it.
    pub signals: LoopSignals,
}

/// The signals of a loop score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent observations, each recorded by its name"
)]
pub struct LoopSignals {
    /// The same failure in at least three of the last five iterations.
    pub same_failure: bool,
    /// Three iterations in a row changed almost nothing.
    pub empty_diff: bool,
    /// A file went back and forth between two contents.
    pub flip_flop: bool,
    /// New work was committed.
    pub committed: bool,
    /// Tests pass that failed before.
    pub tests_pass_now: bool,
    /// A checkbox was verified.
    pub checkbox_verified: bool,
}

/// An escalation step of the ladder, from mild to strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rung {
    /// Add a sign to the guardrails that names what was repeated.
    Rotate,
    /// Go on with the fallback profile.
    Fallback,
    /// Ask a strong model for a diagnosis.
    Doctor,
    /// Wait for a person.
    Person,
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
