//! What a history expects.

use std::collections::{BTreeMap, BTreeSet};

use ralph::state::{LoopSignals, RunOutcomeKind, Rung};
use serde::Deserialize;

/// A verdict, and what it rests on. What is left out may be anything.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// How the run ended.
    pub outcome: RunOutcomeKind,
    /// A part of why.
    pub reason: String,
    /// Iterations that are recorded: exactly so many.
    pub iterations: u32,
    /// Single iterations, by number.
    #[serde(default)]
    pub each: BTreeMap<u32, ExpectedIteration>,
    /// Calls of a model that were made.
    pub calls: Option<u64>,
    /// Tokens that were counted.
    pub tokens: Option<u64>,
    /// Times the run waited by itself.
    pub waits: Option<usize>,
    /// The most seconds it may have taken.
    pub within_s: Option<f64>,
    /// Files of the last commit that was handed back; `null` for one that must not be there.
    #[serde(default)]
    pub tree: BTreeMap<String, Option<String>>,
    /// Parts of the messages of the new commits.
    #[serde(default)]
    pub messages: Vec<String>,
    /// Files of `.ralph/` and a part of each.
    #[serde(default)]
    pub ralph: BTreeMap<String, String>,
    /// Parts of warnings.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Parts of the pull request.
    #[serde(default)]
    pub pull_request: Vec<String>,
    /// What the pull request must not contain.
    #[serde(default)]
    pub not_in_pull_request: Vec<String>,
    /// Parts of what the terminal shows.
    #[serde(default)]
    pub terminal: Vec<String>,
    /// Parts of the records of all iterations, as JSON.
    #[serde(default)]
    pub record: Vec<String>,
    /// What the records must not contain.
    #[serde(default)]
    pub not_in_record: Vec<String>,
}

/// What is to be true of one iteration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedIteration {
    pub score: Option<f64>,
    pub gutter: Option<bool>,
    /// Every signal that was seen, and no other.
    pub signals: Option<BTreeSet<Signal>>,
    /// Every box that is ticked at its end, and no other.
    pub ticked: Option<BTreeSet<String>>,
    /// What was done about a gutter; `none` for nothing.
    pub rung: Option<Climbed>,
    /// The profile it ran with.
    pub profile: Option<String>,
    /// How the agent left it.
    pub ending: Option<String>,
    /// How the tests ended, where they ran.
    pub tests: Option<Tests>,
    /// Every command that failed, with its exit code: `sh test.sh: 1`.
    pub failures: Option<BTreeSet<String>>,
}

/// A signal of the loop score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    SameFailure,
    EmptyDiff,
    FlipFlop,
    Committed,
    TestsPassNow,
    CheckboxVerified,
}

/// What was done about a gutter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Climbed {
    None,
    Rotate,
    Fallback,
    Doctor,
    Person,
}

/// How the tests ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tests {
    Pass,
    Fail,
    NotRun,
}

impl Signal {
    /// Those that were seen.
    pub fn seen(signals: LoopSignals) -> BTreeSet<Self> {
        let all = [
            (Self::SameFailure, signals.same_failure),
            (Self::EmptyDiff, signals.empty_diff),
            (Self::FlipFlop, signals.flip_flop),
            (Self::Committed, signals.committed),
            (Self::TestsPassNow, signals.tests_pass_now),
            (Self::CheckboxVerified, signals.checkbox_verified),
        ];
        all.into_iter()
            .filter_map(|(signal, seen)| seen.then_some(signal))
            .collect()
    }
}

impl From<Option<Rung>> for Climbed {
    fn from(rung: Option<Rung>) -> Self {
        match rung {
            None => Self::None,
            Some(Rung::Rotate) => Self::Rotate,
            Some(Rung::Fallback) => Self::Fallback,
            Some(Rung::Doctor) => Self::Doctor,
            Some(Rung::Person) => Self::Person,
        }
    }
}
