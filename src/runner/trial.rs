//! One agent session outside of any run, which shows that the agent starts, reaches its model and finishes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::agent::actions::AgentAction;
use crate::agent::{Agent, AgentBrief, AgentConclusion, AgentOutcome, AgentSession};
use crate::exec::{Command, Discard, Exit};
use crate::model::{CallPurpose, Model, ModelMessage, ModelReply, ModelRequest, Profile};
use crate::sandbox::Sandbox;
use crate::text::error_chain;
use crate::usage::Usd;

use super::RunError;
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

impl AgentTrial<'_> {
    /// Runs the session and returns the agent's summary. Actions are not performed: that the agent answered with
    /// valid ones is enough.
    pub async fn run(&self, prompt: &str) -> Result<String, RunError> {
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
            SessionEnd::Failed(failure) => Err(RunError::Refused(error_chain(&failure))),
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
    type Error = RunError;

    fn session(&mut self) -> &mut dyn AgentSession {
        self.session.as_mut()
    }

    fn sandbox(&self) -> &dyn Sandbox {
        self.trial.sandbox
    }

    fn home(&self) -> &Path {
        &self.home
    }

    async fn ask(&mut self, messages: Vec<ModelMessage>) -> Result<ModelReply, RunError> {
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

    async fn exec(&mut self, command: Command) -> Result<Exit, RunError> {
        let sandbox = self.trial.sandbox;
        let command = command.cwd(sandbox.root()).timeout(COMMAND_TIMEOUT);
        Ok(sandbox.exec(&command, &mut Discard).await?)
    }

    async fn perform(&mut self, _actions: Vec<AgentAction>) -> Result<bool, RunError> {
        self.has_actions = true;
        Ok(true)
    }
}

fn check_ending(outcome: AgentOutcome) -> Result<String, RunError> {
    match outcome.conclusion {
        AgentConclusion::Continue | AgentConclusion::StopSuccess { .. } | AgentConclusion::Pause { .. } => {
            Ok(outcome.summary)
        }
        AgentConclusion::Rotate { reason }
        | AgentConclusion::StopFailure { reason }
        | AgentConclusion::OverBudget { reason } => Err(RunError::Refused(reason)),
        AgentConclusion::Unusable { error } => Err(RunError::Refused(error)),
    }
}
