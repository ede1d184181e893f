//! From the configuration to the agents of a run.

use std::sync::Arc;

use crate::agent::{
    Agent, AgentCredential, AgentOptions, AgentOptionsError, Agents, KeyVariable, KnownAgent, ModelAccess,
};
use crate::config::{Config, ModelSettings};
use crate::model::AuthMethod;
use crate::sandbox::Isolation;

use super::routes::ProfileRoute;
use super::{AssemblyContext, AssemblyError, ErrorTopic, provider};

/// What to do when the agent `custom` has no command.
pub(crate) const SET_COMMAND: &str = "set it in `ralph.toml`, for example `[agent.custom] command = [\"aider\", \
    \"--message-file\", \"{prompt_file}\"]`";

/// The agents of all profiles. `brokered` returns the access of a profile whose credential is in the broker.
pub(crate) fn create_agents<'a>(
    context: &AssemblyContext,
    config: &Config,
    brokered: impl Fn(&str) -> Option<&'a ModelAccess>,
) -> Result<Agents, AssemblyError> {
    if let Some(agent) = &context.agent {
        return Ok(Agents::new(agent.clone()));
    }
    let default = &config.settings.default_profile;
    let create = |profile: &str| create_agent(context, config, profile, brokered(profile));
    let mut agents = Agents::new(create(default)?);
    for profile in config.profiles.keys().filter(|profile| *profile != default) {
        agents = agents.with(profile, create(profile)?);
    }
    Ok(agents)
}

/// Refuses agents that cannot be created. Those of brokered profiles need no check.
pub(crate) fn check(
    context: &AssemblyContext,
    config: &Config,
    is_brokered: impl Fn(&str) -> bool,
) -> Result<(), AssemblyError> {
    let mut profiles = config.profiles.keys().filter(|profile| !is_brokered(profile));
    profiles.try_for_each(|profile| create_agent(context, config, profile, None).map(drop))
}

/// Whether a switch to this profile changes the agent or its model.
pub(crate) fn differs_from_default(config: &Config, profile: &str) -> bool {
    let described = |name: &str| {
        let model = settings_of(config, name);
        (
            agent_of_profile(config, name),
            model.and_then(|model| model.agent_model.as_deref()),
            model.and_then(|model| model.base_url.as_deref()),
        )
    };
    agent_of_profile(config, profile).is_built_in
        || described(profile) != described(&config.settings.default_profile)
}

/// Refuses a run whose cost is neither known nor limited by tokens. The cost that a program reports counts only if its
/// requests do not pass the broker.
pub(crate) fn check_cost_is_bounded(
    config: &Config,
    is_scripted: bool,
    is_brokered: impl Fn(&str) -> bool,
) -> Result<(), AssemblyError> {
    let own = &config.settings.default_profile;
    let agent = agent_of_profile(config, own);
    let Some(profile) = config.profiles.get(own) else {
        return Ok(());
    };
    let model = &profile.litellm_model;
    let is_known = if agent.is_built_in {
        let route = ProfileRoute::new(config, profile);
        // A profile without a route is refused by its own check.
        let listed = || route.list_price(model).is_some() || route.missing().is_some();
        is_scripted || route.reports_cost() || listed()
    } else {
        agent.reports_cost && !is_brokered(own)
    };
    if is_known || profile.price.is_some() || config.settings.budget.max_tokens_total.is_some() {
        return Ok(());
    }
    let what = if agent.is_built_in {
        format!("the price of the model `{model}` is unknown")
    } else {
        format!("the cost of the agent `{}` is unknown", agent.name)
    };
    Err(AssemblyError::usage(format!(
        "{what}, so budget.max_cost_usd_estimate cannot be enforced"
    )).with_topic(ErrorTopic::Configuration)
    .with_hint(format!(
        "set the price in [models.{own}] (input_usd_per_million, output_usd_per_million), or budget.max_tokens_total \
         (`max_tokens_total` in the task)"
    )))
}

/// Whether the agent of the default profile is a program, which spends money by itself.
pub(crate) fn is_program(context: &AssemblyContext, config: &Config) -> bool {
    context.agent.is_none() && !agent_of_profile(config, &config.settings.default_profile).is_built_in
}

/// Warns that the agent gets its credential itself.
pub(crate) fn exposed_credential_notice(context: &AssemblyContext, config: &Config) -> Option<String> {
    if !is_program(context, config) {
        return None;
    }
    let own = &config.settings.default_profile;
    let agent = agent_of_profile(config, own);
    let (variable, _) = find_credential(config, own, agent.key_variables)?;
    Some(format!(
        "the agent `{}` gets the real `{variable}`: every program in the sandbox can read it",
        agent.name
    ))
}

fn create_agent(
    context: &AssemblyContext,
    config: &Config,
    profile: &str,
    brokered: Option<&ModelAccess>,
) -> Result<Arc<dyn Agent>, AssemblyError> {
    let agent = agent_of_profile(config, profile);
    let model = settings_of(config, profile)
        .and_then(|model| model.agent_model.clone())
        .or_else(|| config.settings.agent.model.clone());
    let access = match brokered {
        Some(brokered) => brokered.clone(),
        None if agent.is_built_in => ModelAccess::default(),
        None => direct_access(context, config, profile, agent)?,
    };
    let options = AgentOptions {
        model,
        effort: config.settings.agent.effort.clone(),
        command: config.settings.agent.custom.command.clone(),
        key_variable: settings_of(config, profile).and_then(|model| model.api_key_env.clone()),
    };
    (agent.create)(options, access).map_err(|error| match error {
        AgentOptionsError::NoCommand => AssemblyError::usage(error.to_string())
            .with_topic(ErrorTopic::Agent)
            .with_hint(SET_COMMAND),
    })
}

/// How an agent reaches its model with the credential itself.
fn direct_access(
    context: &AssemblyContext,
    config: &Config,
    profile: &str,
    agent: KnownAgent,
) -> Result<ModelAccess, AssemblyError> {
    let isolation = provider::create_provider(context, config)?
        .capabilities()
        .isolation;
    let may_hold_credential =
        isolation == Isolation::DirectoryOnly || config.settings.agent.dangerously_pass_credential;
    let found = find_credential(config, profile, agent.key_variables);
    if found.is_some() && !may_hold_credential {
        return Err(AssemblyError::usage(format!(
            "the agent `{}` needs its credential inside the sandbox",
            agent.name
        ))
        .with_topic(ErrorTopic::Agent)
        .with_hint("`agent.dangerously_pass_credential = true` passes it into the sandbox"));
    }
    let usual = agent.key_variables.first().map(|key| key.name);
    let variable = found.as_ref().map(|(variable, _)| variable.as_str()).or(usual);
    Ok(ModelAccess {
        base_url: settings_of(config, profile).and_then(|model| model.base_url.clone()),
        credential_hint: variable.map(variable_hint),
        credential: found.map(|(_, credential)| credential),
    })
}

/// What to do when the credential in a variable is refused.
pub(crate) fn variable_hint(variable: &str) -> String {
    format!("put a valid one into `{variable}`, then `ralph resume`")
}

/// The credential of a profile and its variable: the one that the profile names, else the first of the agent that is set.
pub(crate) fn find_credential(
    config: &Config,
    profile: &str,
    keys: &[KeyVariable],
) -> Option<(String, AgentCredential)> {
    let own = settings_of(config, profile).and_then(|model| model.api_key_env.clone());
    let auth_of = |name: &str| {
        let usual = keys.iter().find(|key| key.name == name);
        usual.map_or(AuthMethod::ApiKey, |key| key.auth)
    };
    let names = match own {
        Some(name) => vec![name],
        None => keys.iter().map(|key| key.name.to_owned()).collect(),
    };
    names.into_iter().find_map(|name| {
        let credential = AgentCredential {
            auth: auth_of(&name),
            value: config.credential(&name)?,
        };
        Some((name, credential))
    })
}

/// The agent of a profile.
pub(crate) fn agent_of_profile(config: &Config, profile: &str) -> KnownAgent {
    let of_profile = settings_of(config, profile).and_then(|model| model.agent);
    of_profile.unwrap_or(config.settings.agent.kind)
}

/// The settings of a profile.
pub(crate) fn settings_of<'a>(config: &'a Config, profile: &str) -> Option<&'a ModelSettings> {
    config.settings.models.get(profile)
}
