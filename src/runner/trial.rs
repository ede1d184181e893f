//! One agent session outside of any run, which shows that the agent starts, reaches its model and finishes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::agent::actions::AgentAction;
use crate::agent::{Agent, AgentBrief, AgentConclusion, AgentOutcome, AgentSession, ModelFailure};
use crate::exec::{Command, Discard, Exit};
use crate::model::{CallPurpose, Model, ModelError, ModelMessage, ModelReply, ModelRequest, Profile};
use crate::sandbox::{Sandbox, SandboxError};
use crate::usage::Usd;

use super::session::{SessionEnd, SessionHost, run_session};

/// Timeout of one command of the session.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(180);

/// What a trial session needs.
pub struct AgentTrial<'a> {
    /// The sandbox it runs in.
    pub sandbox: &'a dyn Sandbox,
    /// The agent that is tried.
    pub agent: &'a dyn Agent,
    /// Answers an agent that asks through the runner.
    pub model: &'a dyn Model,
    /// The model profile.
    pub profile: &'a Profile,
    /// The most it may cost.
    pub max_cost: Usd,
}

/// Why a trial session failed.
#[derive(Debug, Error)]
pub enum AgentTrialError {
    /// The sandbox failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model behind the agent did not answer.
    #[error(transparent)]
    Unanswered(#[from] ModelFailure),
    /// The agent gave up, or its answer was unusable.
    #[error("{0}")]
    Ended(String),
}

impl AgentTrial<'_> {
    /// Runs the session and returns the agent's summary. Actions are not performed: that the agent answered with
    /// valid ones is enough.
    pub async fn run(&self, prompt: &str) -> Result<String, AgentTrialError> {
        let brief = AgentBrief {
            text: prompt.to_owned(),
            iteration: 1,
            home: self.sandbox.root().join("agent"),
            cost_left: Some(self.max_cost),
        };
        let mut host = TrialHost {
            trial: self,
            session: self.agent.session(&brief),
            home: brief.home,
            calls: 0,
            has_actions: false,
        };
        match run_session(&mut host).await? {
            SessionEnd::Finished(outcome) if host.has_actions => Ok(outcome.summary),
            SessionEnd::Finished(outcome) => check_ending(outcome),
            SessionEnd::Failed(failure) => Err(failure.into()),
        }
    }
}

struct TrialHost<'a> {
    trial: &'a AgentTrial<'a>,
    session: Box<dyn AgentSession>,
    home: PathBuf,
    calls: u32,
    has_actions: bool,
}

impl SessionHost for TrialHost<'_> {
    type Error = AgentTrialError;

    fn session(&mut self) -> &mut dyn AgentSession {
        self.session.as_mut()
    }

    fn sandbox(&self) -> &dyn Sandbox {
        self.trial.sandbox
    }

    fn home(&self) -> &Path {
        &self.home
    }

    async fn ask(&mut self, messages: Vec<ModelMessage>) -> Result<ModelReply, AgentTrialError> {
        let request = ModelRequest {
            profile: self.trial.profile.clone(),
            messages,
            iteration: 1,
            call: self.calls,
            purpose: CallPurpose::Agent,
        };
        self.calls += 1;
        Ok(self.trial.model.answer(&request, &mut |_text| {}).await?)
    }

    async fn exec(&mut self, command: Command) -> Result<Exit, AgentTrialError> {
        let sandbox = self.trial.sandbox;
        let command = command.cwd(sandbox.root()).timeout(COMMAND_TIMEOUT);
        Ok(sandbox.exec(&command, &mut Discard).await?)
    }

    async fn perform(&mut self, _actions: Vec<AgentAction>) -> Result<bool, AgentTrialError> {
        self.has_actions = true;
        Ok(true)
    }
}

fn check_ending(outcome: AgentOutcome) -> Result<String, AgentTrialError> {
    match outcome.conclusion {
        AgentConclusion::Continue | AgentConclusion::StopSuccess { .. } | AgentConclusion::Pause { .. } => {
            Ok(outcome.summary)
        }
        AgentConclusion::Rotate { reason }
        | AgentConclusion::StopFailure { reason }
        | AgentConclusion::OverBudget { reason } => Err(AgentTrialError::Ended(reason)),
        AgentConclusion::Unusable { error } => Err(AgentTrialError::Ended(error)),
    }
}
