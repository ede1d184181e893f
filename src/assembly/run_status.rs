//! The state of a run, as command line and API show it.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use crate::state::{InterventionRequest, JournalEntry, JournalLine, RunDir};
use crate::task::{Checkbox, CheckboxId, Task};

use super::AssemblyError;
use super::summary::RunSummary;

/// The state of a run. Independent of the stored format, which may change.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunStatus {
    /// Its id.
    pub run: String,
    /// `running`, `interrupted`, or how it ended.
    pub state: String,
    /// Why it ended.
    pub reason: Option<String>,
    /// The process that works on it; `null` if another host works on it.
    pub pid: Option<u32>,
    /// The title of its task.
    pub task: String,
    /// The git directory of the user's repository.
    pub repository: String,
    /// The branch that gets the work.
    pub branch: String,
    /// Recorded iterations.
    pub iterations: u32,
    /// The checkboxes of its task; empty if another host works on it.
    pub checkboxes: Vec<CheckboxStatus>,
    /// The loop score of the newest iteration, from 0 to 1.
    pub loop_score: Option<f64>,
    /// Input and output tokens.
    pub tokens: u64,
    /// The cost of all calls whose price is known.
    pub cost_usd: f64,
    /// Calls whose price is unknown.
    pub unpriced_calls: u64,
    /// Time at work.
    pub worked_seconds: u64,
    /// When it was created.
    pub created: String,
    /// A URL or a file.
    pub pull_request: Option<String>,
    /// What people asked for: what was handled first, then what waits. Empty if another host works on it.
    pub interventions: Vec<InterventionStatus>,
}

/// What a person asked of a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InterventionStatus {
    /// The id of the request.
    pub id: String,
    /// Who asked.
    pub by: String,
    /// When.
    pub at: String,
    /// What for, in one line.
    pub what: String,
    /// `pending`, `done` or `refused`.
    pub state: &'static str,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A checkbox of a task.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CheckboxStatus {
    /// Its id.
    pub id: String,
    /// Its text.
    pub text: String,
    /// Whether evidence ticked it.
    pub ticked: bool,
}

impl InterventionStatus {
    /// A request that waits.
    #[must_use]
    pub fn pending(asked: &InterventionRequest) -> Self {
        Self::new(asked, "pending", None)
    }

    fn new(asked: &InterventionRequest, state: &'static str, reason: Option<&String>) -> Self {
        Self {
            id: asked.id.clone(),
            by: asked.by.clone(),
            at: asked.at.to_string(),
            what: asked.intervention.summary(),
            state,
            reason: reason.cloned(),
        }
    }
}

impl RunStatus {
    /// Reads the state of a run, without its lock.
    pub fn new(run: &RunDir) -> Result<Self, AssemblyError> {
        Self::with_journal(run, &run.journal()?)
    }

    /// The state of a run whose files another host has, as far as the index has it.
    #[cfg(feature = "serve")]
    pub(crate) fn of_row(row: &crate::store::IndexedRun) -> Self {
        Self {
            run: row.id.to_string(),
            state: row.state.clone(),
            reason: row.reason.clone(),
            pid: None,
            task: row.title.clone(),
            repository: row.repository.clone(),
            branch: row.branch.clone(),
            iterations: row.iterations,
            checkboxes: Vec::new(),
            loop_score: None,
            tokens: row.tokens,
            cost_usd: row.cost.dollars(),
            unpriced_calls: row.unpriced_calls,
            worked_seconds: row.worked.as_secs(),
            created: row.created.to_string(),
            pull_request: row.pull_request.clone(),
            interventions: Vec::new(),
        }
    }

    /// The state of a run whose journal was read already.
    pub(crate) fn with_journal(run: &RunDir, lines: &[JournalLine]) -> Result<Self, AssemblyError> {
        let facts = run.facts();
        let holder = run.holder()?;
        let summary = RunSummary::new(facts, lines, holder.is_some());
        let last = lines.iter().rev().find_map(|line| match &line.entry {
            JournalEntry::Recorded(record) => Some(record.as_ref()),
            _ => None,
        });
        let file = run.pull_request_file();
        let file = file.exists().then(|| file.display().to_string());
        Ok(Self {
            run: facts.id.to_string(),
            pid: holder.map(|owner| owner.pid),
            task: summary.title(),
            repository: facts.repository.display().to_string(),
            branch: facts.branch.clone(),
            iterations: summary.used.iterations,
            checkboxes: checkboxes(summary.task, &summary.ticked),
            state: summary.state,
            reason: summary.reason,
            loop_score: last.map(|record| record.score.total),
            tokens: summary.used.tokens.total(),
            cost_usd: summary.used.cost.dollars(),
            unpriced_calls: summary.used.unpriced_calls,
            worked_seconds: summary.used.worked.as_secs(),
            created: facts.created.to_string(),
            pull_request: summary.pull_request.or(file),
            interventions: interventions(run, lines)?,
        })
    }
}

/// What people asked for: what was handled first, then what waits.
fn interventions(run: &RunDir, lines: &[JournalLine]) -> Result<Vec<InterventionStatus>, AssemblyError> {
    let mut shown: Vec<InterventionStatus> = lines
        .iter()
        .filter_map(|line| match &line.entry {
            JournalEntry::Intervened { asked, refused } => {
                let state = if refused.is_some() { "refused" } else { "done" };
                Some(InterventionStatus::new(asked, state, refused.as_ref()))
            }
            _ => None,
        })
        .collect();
    for asked in run.inbox().pending()? {
        if !shown.iter().any(|one| one.id == asked.id) {
            shown.push(InterventionStatus::pending(&asked));
        }
    }
    Ok(shown)
}

fn checkboxes(task: Option<Task>, ticked: &BTreeSet<CheckboxId>) -> Vec<CheckboxStatus> {
    let checkboxes = task.map(|task| task.checkboxes).unwrap_or_default();
    let show = |one: Checkbox| CheckboxStatus {
        ticked: ticked.contains(&one.id),
        text: one.text,
        id: one.id.to_string(),
    };
    checkboxes.into_iter().map(show).collect()
}
