//! The loop: iterations with fresh agent sessions, evidence, budgets, and escalation when a run goes in circles.
//!
//! [`create`] makes a run and [`drive`] works on it, from its beginning or from its last checkpoint. There is one loop.
//! The runner reports events; it knows no terminal and no store.
//!
//! A run being driven has two parts. `RunProgress` is what a checkpoint saves, and keeps to the budget; `Workplace` is the
//! sandbox with the private clone. `Run` is the thin driver over them.

mod accounts;
mod actions;
mod agent_request;
mod agent_work;
mod allow_hosts;
mod budget;
mod budget_warnings;
mod checkbox_costs;
mod ci;
mod collect;
mod compute_cost;
mod create;
mod doctor;
mod edit;
mod error;
mod evidence;
mod evidence_sandbox;
mod gutter;
mod hand_edits;
mod interventions;
mod iteration;
mod iteration_files;
mod ladder;
mod lease;
mod leftovers;
mod metering;
mod model_calls;
mod open;
mod person_command;
mod preflight;
mod progress;
mod prompt;
mod publish;
mod pull_request;
mod report;
mod review;
mod review_rounds;
mod run;
mod run_files;
mod saved;
mod session;
mod settings;
mod setup;
mod signature;
mod state_ref;
#[cfg(test)]
mod tests;
mod trial;
mod verdict;
mod weakened;
mod workplace;

use std::sync::Arc;

use crate::agent::Agents;
use crate::clock::Clock;
use crate::event::EventSink;
use crate::evidence::SigningKey;
use crate::exec::Host;
use crate::id::{ObjectId, RunId};
use crate::model::Model;
use crate::sandbox::{Provider, SandboxSpec};
use crate::scm::Forge;
use crate::secret::Redactor;
use crate::state::{RunDir, RunOutcomeKind, RunOwner};

use open::Opened;
use report::Reporter;

pub use budget::{Budget, Ledger};
pub use checkbox_costs::{CheckboxCost, checkbox_costs};
pub use compute_cost::ComputeCost;
pub use create::{NewRun, adopt, create, save_new};
pub use edit::ticked_after;
pub use error::RunError;
pub use metering::{AgentMetering, MeterNotices};
pub use preflight::{Precondition, PreflightFailure};
pub use prompt::PromptError;
pub use settings::{CiRules, DoctorRules, DoneRules, OverlapRule, Profiles, RunSettings};
pub use state_ref::StateRef;
pub use trial::AgentTrial;

/// The parts a run is put together from.
#[derive(Clone)]
pub struct RunParts {
    /// Creates the sandbox.
    pub provider: Arc<dyn Provider>,
    /// The agents that edit the code, by model profile.
    pub agents: Agents,
    /// Answers agents that ask through the runner, and the doctor's questions.
    pub model: Arc<dyn Model>,
    /// Opens the pull request.
    pub forge: Arc<dyn Forge>,
    /// Receives the events.
    pub sink: Arc<dyn EventSink>,
    /// The only source of the wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Starts git on the host.
    pub host: Host,
    /// Removes secrets from everything that is written or reported.
    pub redactor: Redactor,
    /// The process that works on the run.
    pub owner: RunOwner,
    /// Counts the calls of agent programs, where they go through the broker.
    pub metering: Option<AgentMetering>,
    /// Signs the evidence.
    pub evidence_key: SigningKey,
    /// Checks on the host, besides those of the runner itself, that must pass before the run starts.
    pub preconditions: Vec<Arc<dyn Precondition>>,
}

/// How a run ended, and what it leaves behind.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub kind: RunOutcomeKind,
    /// Why it ended.
    pub reason: String,
    /// The branch that has the work.
    pub branch: String,
    /// The last commit that was handed back.
    pub tip: ObjectId,
    /// Where the pull request is, once it is open.
    pub pull_request: Option<String>,
    /// What the run used.
    pub used: Ledger,
    /// The estimated cost of the sandbox; `None` where the provider charges nothing by the hour.
    pub compute: Option<ComputeCost>,
}

/// The arguments of [`drive`] and the sink of events, which every part of the run reads and none changes.
#[derive(Clone, Copy)]
struct RunInputs<'a> {
    parts: &'a RunParts,
    settings: &'a RunSettings,
    spec: &'a SandboxSpec,
    dir: &'a RunDir,
    reporter: &'a Reporter,
}

/// Works on a run until it is done, failed, paused or stopped: from its beginning, or from its last checkpoint.
pub async fn drive(
    parts: &RunParts,
    settings: &RunSettings,
    spec: &SandboxSpec,
    dir: &RunDir,
) -> Result<RunOutcome, RunError> {
    let reporter = &Reporter::new(parts, &dir.facts().id);
    let inputs = RunInputs {
        parts,
        settings,
        spec,
        dir,
        reporter,
    };
    let lock = dir.lock(&parts.owner)?;
    let driven = match open::open(inputs, &lock).await {
        Ok(Opened::Active(mut run)) => run.run_to_end().await,
        Ok(Opened::Done(outcome)) => Ok(*outcome),
        Err(error) => Err(error),
    };
    driven.inspect_err(|error| report::record_broken(inputs, error))
}

/// Asks the doctor about a run at rest, and returns the diagnosis. It is also saved with the run.
pub async fn diagnose(
    parts: &RunParts,
    settings: &RunSettings,
    spec: &SandboxSpec,
    dir: &RunDir,
) -> Result<String, RunError> {
    let reporter = &Reporter::new(parts, &dir.facts().id);
    let inputs = RunInputs {
        parts,
        settings,
        spec,
        dir,
        reporter,
    };
    let lock = dir.lock(&parts.owner)?;
    match open::open(inputs, &lock).await? {
        Opened::Active(mut run) => run.diagnose_only().await,
        Opened::Done(_) => Err(RunError::Refused(
            "the run is done, there is nothing to diagnose".to_owned(),
        )),
    }
}
