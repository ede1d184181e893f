//! Which profile a person means, and whether a run can use it.

use crate::agent::KnownAgent;
use crate::config::Config;
use crate::state::{Intervention, InterventionRequest, RunDir};

use super::agents::agent_of_profile;
use super::{AssemblyContext, AssemblyError, ErrorTopic, RunControl, preflight, routes};

impl RunControl {
    /// Asks a run to go on with another profile, or with `once` to use it for one iteration. `name` is that of a profile or,
    /// if no profile has it, of an agent: then a profile with this agent is chosen, the default one if it has it.
    pub async fn choose_profile(
        &self,
        run: &RunDir,
        name: &str,
        once: bool,
    ) -> Result<InterventionRequest, AssemblyError> {
        let config = self.configuration(run)?;
        let name = meant_profile(name, &config)?.to_owned();
        let chosen = Intervention::Profile { name, once };
        self.check_usable(run, &chosen).await?;
        self.intervene(run, chosen)
    }

    /// Refuses what cannot be asked of this run, also a profile whose agent has no credential.
    pub(super) async fn check_usable(
        &self,
        run: &RunDir,
        intervention: &Intervention,
    ) -> Result<(), AssemblyError> {
        let config = self.check(run, intervention)?;
        if let (Some(config), Intervention::Profile { name, .. }) = (config, intervention) {
            check_usable(&self.context, &config, name, run.facts().script.is_some()).await?;
        }
        Ok(())
    }
}

/// Refuses a profile that the run does not know or cannot call, and one whose agent has no credential.
pub(super) async fn check_usable(
    context: &AssemblyContext,
    config: &Config,
    name: &str,
    is_scripted: bool,
) -> Result<(), AssemblyError> {
    check_profile(name, config, is_scripted)?;
    let agent = agent_of_profile(config, name);
    if agent.is_built_in {
        return Ok(());
    }
    match preflight::missing_credential(context, config, name).await? {
        None => Ok(()),
        Some(missing) => {
            let message = format!(
                "the agent `{}` of the profile `{name}` cannot be used: {}",
                agent.name, missing.why
            );
            Err(AssemblyError::usage(message)
                .with_topic(ErrorTopic::Model)
                .with_hint(missing.next_step))
        }
    }
}

/// The profile of this name, else one whose agent has the name.
fn meant_profile<'a>(name: &'a str, config: &'a Config) -> Result<&'a str, AssemblyError> {
    let Ok(agent) = name.parse::<KnownAgent>() else {
        return Ok(name);
    };
    if config.profiles.contains_key(name) {
        return Ok(name);
    }
    let default = std::iter::once(&config.settings.default_profile);
    let mut profiles = default.chain(config.profiles.keys());
    let found = profiles.find(|profile| agent_of_profile(config, profile) == agent);
    found.map(String::as_str).ok_or_else(|| {
        AssemblyError::usage(format!("no model profile of this run has the agent `{name}`")).with_topic(ErrorTopic::Model).with_hint(format!(
            "add a profile to ralph.toml, for example [models.{name}] with `agent = \"{name}\"` and a `litellm_model`; its \
             program has to be in the sandbox. A live run has to be paused, and resumed with it"
        ))
    })
}

/// Refuses a profile that the run does not know, or that the built-in agent cannot call.
pub(super) fn check_profile(name: &str, config: &Config, is_scripted: bool) -> Result<(), AssemblyError> {
    if !config.profiles.contains_key(name) {
        let known: Vec<&str> = config.profiles.keys().map(String::as_str).collect();
        let message = format!("there is no model profile `{name}`");
        return Err(AssemblyError::usage(message)
            .with_topic(ErrorTopic::Model)
            .with_hint(format!("the profiles are {}", known.join(", "))));
    }
    match routes::uncallable(config, name).filter(|_| !is_scripted) {
        None => Ok(()),
        Some(missing) => {
            let message = format!("the profile `{name}` cannot be used: {}", missing.why);
            Err(AssemblyError::usage(message)
                .with_topic(ErrorTopic::Model)
                .with_hint(missing.next_step))
        }
    }
}
