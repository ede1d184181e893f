//! The loop: iterations with fresh sessions, evidence, budgets, and what is done when it goes in circles.
//!
//! [`create`] makes a run and [`drive`] works on it, from its beginning or from its last checkpoint: there is one loop.
//! The runner reports events and knows neither a terminal nor a store.

mod ask;
mod budget;
mod charge;
mod compute;
mod doctor;
mod error;
mod evidence;
mod gutter;
mod iteration;
mod ladder;
mod lease;
mod logbook;
mod metering;
mod notebook;
mod open;
mod past;
mod perform;
mod preflight;
mod prompt;
mod publish;
mod report;
mod round;
mod run;
mod sandboxes;
mod session;
mod settings;
mod text;
mod verdict;
mod watch;
mod work;

use std::sync::Arc;

use crate::agent::Agents;
use crate::clock::Clock;
use crate::event::EventSink;
use crate::exec::Host;
use crate::id::{ObjectId, RunId};
use crate::model::Model;
use crate::sandbox::{Provider, SandboxSpec};
use crate::scm::Forge;
use crate::secret::Redactor;
use crate::state::{RunDir, RunOutcomeKind, RunOwner};
use crate::usage::{Tokens, Usd};

use open::Taken;

pub use budget::{Budget, BudgetExceeded, Ledger};
pub use compute::ComputeCost;
pub use error::RunError;
pub use gutter::{GUTTER, failure_of_text, normalise, score};
pub use ladder::{Next, Standing};
pub use metering::{AgentMetering, MeterNotices};
pub use open::{NewRun, adopt, create};
pub use preflight::{Precondition, PreflightFailure};
pub use prompt::{PromptError, PromptState, render as render_prompt};
pub use round::{Round, RoundError};
pub use settings::{DoctorApply, DoctorRules, Profiles, RunSettings};

/// The parts a run is put together from.
#[derive(Clone)]
pub struct RunParts {
    /// Makes the sandbox.
    pub provider: Arc<dyn Provider>,
    /// Edit the code.
    pub agents: Agents,
    /// Answers, for agents that ask and for the doctor.
    pub model: Arc<dyn Model>,
    /// Opens the pull request.
    pub forge: Arc<dyn Forge>,
    /// Receives the events.
    pub sink: Arc<dyn EventSink>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Starts git on the host.
    pub host: Host,
    /// Knows what must not be seen.
    pub redactor: Redactor,
    /// Who works on the run.
    pub owner: RunOwner,
    /// Counts what agent programs use, where their calls go through the broker.
    pub metering: Option<AgentMetering>,
    /// What must hold on this machine before anything begins, besides what the runner itself looks at.
    pub preconditions: Vec<Arc<dyn Precondition>>,
}

/// How a run ended and what it leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub kind: RunOutcomeKind,
    /// Why.
    pub reason: String,
    /// The branch the work goes to.
    pub branch: String,
    /// The last commit that was handed back.
    pub tip: ObjectId,
    /// Where the pull request is, once there is one.
    pub pull_request: Option<String>,
    /// Iterations recorded.
    pub iterations: u32,
    /// Tokens used.
    pub tokens: Tokens,
    /// What it cost, as far as prices are known.
    pub cost: Usd,
    /// Calls whose price nobody knows.
    pub unpriced_calls: u64,
    /// What its sandbox cost, about; `None` where nobody asks for money by the hour.
    pub compute: Option<ComputeCost>,
}

/// Asks the doctor about a run that rests, and returns what it said. The diagnosis is kept with the run.
pub async fn diagnose(
    parts: &RunParts,
    settings: &RunSettings,
    sandbox: &SandboxSpec,
    dir: &RunDir,
) -> Result<String, RunError> {
    match run::Run::open(parts, settings, sandbox, dir).await? {
        Taken::Up(mut run) => run.diagnosed().await,
        Taken::Done(_) => Err(RunError::Refused(
            "the run is done: there is nothing to diagnose".to_owned(),
        )),
    }
}

/// Works on a run until it is done, failed, paused or stopped: from its beginning, or from its last checkpoint.
pub async fn drive(
    parts: &RunParts,
    settings: &RunSettings,
    sandbox: &SandboxSpec,
    dir: &RunDir,
) -> Result<RunOutcome, RunError> {
    match run::Run::open(parts, settings, sandbox, dir).await? {
        Taken::Up(mut run) => run.finish_it().await,
        Taken::Done(outcome) => Ok(outcome),
    }
}
