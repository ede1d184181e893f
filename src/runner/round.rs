//! One session of an agent outside of any run, to see whether it starts, reaches its model and ends well.

use std::time::Duration;

use thiserror::Error;

use crate::agent::{Agent, AgentBrief, AgentConclusion, AgentOutcome, AgentStep, ModelFailure, StepResult};
use crate::exec::{Command, Discard};
use crate::model::{CallPurpose, Model, ModelError, ModelMessage, ModelReply, ModelRequest, Profile};
use crate::sandbox::{Sandbox, SandboxError};
use crate::usage::Usd;

/// The longest a command of such a session may take.
const LONGEST: Duration = Duration::from_secs(180);
/// The most steps: a session that does nothing needs few.
const MOST_STEPS: u32 = 8;

/// What a session is held with.
pub struct Round<'a> {
    /// Where.
    pub sandbox: &'a dyn Sandbox,
    /// By whom.
    pub agent: &'a dyn Agent,
    /// Who answers an agent that asks through the runner.
    pub model: &'a dyn Model,
    /// With which profile.
    pub profile: &'a Profile,
    /// What it may cost at the most.
    pub cost: Usd,
}

/// Why a session did not end well.
#[derive(Debug, Error)]
pub enum RoundError {
    /// The sandbox failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model behind the agent did not answer.
    #[error(transparent)]
    Trouble(#[from] ModelFailure),
    /// The agent ended badly.
    #[error("{0}")]
    Ended(String),
}

impl Round<'_> {
    /// Holds the session, and returns the agent's last words. What an agent would have the runner perform is not
    /// performed: that it was asked for is enough.
    pub async fn hold(&self, prompt: &str) -> Result<String, RoundError> {
        let brief = AgentBrief {
            text: prompt.to_owned(),
            iteration: 1,
            home: self.sandbox.root().join("agent"),
            cost_left: Some(self.cost),
        };
        self.sandbox.files().mkdir(&brief.home).await?;
        let mut session = self.agent.session(&brief);
        let (mut done, mut calls) = (StepResult::Started, 0);
        for _ in 0..MOST_STEPS {
            done = match session.next(done) {
                AgentStep::Ask(messages) => {
                    calls += 1;
                    StepResult::Answered(self.ask(messages, calls - 1).await?)
                }
                AgentStep::Write(files) => {
                    for file in files {
                        self.sandbox
                            .files()
                            .write(&file.path, file.text.as_bytes(), 0o600)
                            .await?;
                    }
                    StepResult::Written
                }
                AgentStep::Exec(command) => StepResult::Exited(self.exec(command).await?),
                AgentStep::Perform(actions) => return Ok(format!("{} actions", actions.len())),
                AgentStep::Finish(outcome) => return ended(outcome),
                AgentStep::Fail(trouble) => return Err(trouble.into()),
            };
        }
        Err(RoundError::Ended(format!(
            "the session did not finish within {MOST_STEPS} steps"
        )))
    }

    async fn exec(&self, command: Command) -> Result<crate::exec::Exit, SandboxError> {
        let command = command.cwd(self.sandbox.root()).timeout(LONGEST);
        self.sandbox.exec(&command, &mut Discard).await
    }

    async fn ask(&self, messages: Vec<ModelMessage>, call: u32) -> Result<ModelReply, ModelError> {
        let request = ModelRequest {
            profile: self.profile.clone(),
            messages,
            iteration: 1,
            call,
            purpose: CallPurpose::Agent,
        };
        self.model.answer(&request, &mut |_text| {}).await
    }
}

fn ended(outcome: AgentOutcome) -> Result<String, RoundError> {
    match outcome.conclusion {
        AgentConclusion::Continue | AgentConclusion::StopSuccess { .. } | AgentConclusion::Pause { .. } => {
            Ok(outcome.summary)
        }
        AgentConclusion::Rotate { reason }
        | AgentConclusion::StopFailure { reason }
        | AgentConclusion::OverBudget { reason } => Err(RoundError::Ended(reason)),
        AgentConclusion::Unusable { error } => Err(RoundError::Ended(error)),
    }
}
