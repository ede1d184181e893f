//! Before the first iteration: whether the agents are there.

use crate::agent::Agent;
use crate::event::EventKind;
use crate::exec::{Command, Discard};

use super::RunError;
use super::perform::{chain, output_of};
use super::run::Run;
use super::text::one_line;

/// How long an agent may take to tell its version.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

impl Run<'_> {
    /// Asks each agent that this run may use for its version, inside the sandbox.
    pub(super) async fn check_agents(&self) -> Result<(), RunError> {
        let profiles = &self.settings.profiles;
        let mut asked: Vec<String> = Vec::new();
        for profile in [Some(&profiles.default), profiles.fallback.as_ref()]
            .into_iter()
            .flatten()
        {
            let agent = self.parts.agents.of(profile);
            if !asked.iter().any(|name| name == agent.name()) {
                self.check_agent(agent.as_ref()).await?;
                asked.push(agent.name().to_owned());
            }
        }
        Ok(())
    }

    async fn check_agent(&self, agent: &dyn Agent) -> Result<(), RunError> {
        let Some(probe) = agent.probe() else {
            return Ok(());
        };
        let version = self.ask_version(&probe.timeout(PATIENCE)).await;
        let version = version.map_err(|reason| RunError::NoAgent {
            agent: agent.name().to_owned(),
            reason,
        })?;
        self.reporter.emit(EventKind::AgentFound {
            agent: agent.name().to_owned(),
            version,
        });
        Ok(())
    }

    async fn ask_version(&self, probe: &Command) -> Result<String, String> {
        let exit = self
            .sandbox
            .exec(probe, &mut Discard)
            .await
            .map_err(|error| chain(&error))?;
        let said = one_line(&output_of(&exit, &self.parts.redactor));
        if exit.success() {
            Ok(said)
        } else {
            Err(format!("`{probe}`: {}: {said}", exit.status))
        }
    }
}
