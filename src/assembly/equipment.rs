//! Connects what a sandbox and its agents work with: provider, credentials, agents and model.

use std::path::PathBuf;
use std::sync::Arc;

use crate::agent::Agents;
use crate::agent::actions::check_scripted_answer;
use crate::config::Config;
use crate::model::{Model, Script};
use crate::network::PolicyMode;
use crate::runner::Precondition;
use crate::sandbox::daytona::DaytonaSecret;
use crate::sandbox::{Provider, SandboxSpec};
use crate::secret::Redactor;

use super::broker::{BrokeredServices, RunBroker};
use super::command_env::CommandEnv;
use super::provider::{create_checked_provider, create_provider, create_provider_with, enforceable};
use super::routes::{self, create_model};
use super::{AssemblyContext, AssemblyError, ErrorTopic, agents, preflight, settings};

/// What a sandbox and its agents work with, whether for a run or for a selftest.
pub(crate) struct Equipment {
    pub(crate) provider: Arc<dyn Provider>,
    command_env: CommandEnv,
    pub(crate) agents: Agents,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) preconditions: Vec<Arc<dyn Precondition>>,
    /// Serves the agents for as long as it lives.
    pub(crate) brokered: Option<RunBroker>,
    /// Knows every credential that is in use.
    pub(crate) redactor: Redactor,
    is_scripted: bool,
}

impl Equipment {
    /// Connects everything. What agents use is recorded in `usage_file`; a `script` replaces the model.
    pub(crate) async fn open(
        context: &AssemblyContext,
        config: &Config,
        services: BrokeredServices,
        usage_file: PathBuf,
        redactor: Redactor,
        script: Option<&str>,
    ) -> Result<Self, AssemblyError> {
        let clock = context.surroundings.clock();
        let brokered = services.open(config, usage_file, clock, &redactor).await?;
        let access = |profile: &str| brokered.as_ref()?.access(profile);
        let command_env = CommandEnv::new(config, create_provider(context, config)?.as_ref())?;
        let mut handed_over: Vec<DaytonaSecret> = brokered
            .iter()
            .flat_map(|brokered| brokered.handed_over.clone())
            .collect();
        for secret in &command_env.handed_over {
            let variable = &secret.variable;
            if handed_over.iter().any(|other| other.variable == *variable) {
                let message = format!(
                    "sandbox.secrets.{variable}: the credential of the agent is in the same variable"
                );
                return Err(AssemblyError::usage(message)
                    .with_topic(ErrorTopic::Configuration)
                    .with_hint("remove it, or choose another name"));
            }
            handed_over.push(secret.clone());
        }
        Ok(Self {
            provider: create_provider_with(context, config, handed_over)?,
            command_env,
            agents: agents::create_agents(context, config, access)?,
            model: create_model(config, script)?,
            preconditions: match script {
                Some(_) => Vec::new(),
                None => preflight::preconditions(context, config, brokered.as_ref()).await?,
            },
            brokered,
            redactor,
            is_scripted: script.is_some(),
        })
    }

    /// Reports what the sandbox does not enforce, what it can read of the host, and a credential that it holds.
    pub(crate) fn report_limits(&self, context: &AssemblyContext, config: &Config) {
        let capabilities = self.provider.capabilities();
        let spending = capabilities
            .spending_notice()
            .filter(|_| agents::is_program(context, config));
        for notice in capabilities.notice().into_iter().chain(spending) {
            context.reporter.warn(notice);
        }
        let brokered = self.brokered.as_ref();
        let is_brokered = brokered.is_some_and(|brokered| {
            let default = &config.settings.default_profile;
            brokered.access(default).is_some()
        });
        if let (false, Some(notice)) = (is_brokered, agents::exposed_credential_notice(context, config)) {
            context.reporter.warn(&notice);
        }
        if let Some(notice) = routes::notice(config).filter(|_| !self.is_scripted && context.agent.is_none())
        {
            context.reporter.warn(&notice);
        }
        let secrets = config.settings.sandbox.secrets.iter();
        for (name, _) in secrets.filter(|(_, secret)| secret.dangerously_pass) {
            let notice =
                format!("sandbox.secrets.{name}: everything in the sandbox can read the value itself");
            context.reporter.warn(&notice);
        }
        for mount in config.mounts() {
            context.reporter.inform(&format!(
                "mount: the sandbox reads {} as {}",
                mount.source.display(),
                mount.target.display()
            ));
        }
    }

    /// The same sandbox with the broker within reach, and with the part of the policy that the provider enforces.
    pub(crate) fn connect_spec(
        &self,
        context: &AssemblyContext,
        config: &Config,
        mut spec: SandboxSpec,
    ) -> Result<SandboxSpec, AssemblyError> {
        if let Some(brokered) = &self.brokered {
            spec.network = brokered.allow(spec.network)?;
            spec.egress = brokered.join(spec.egress);
        }
        spec = self.command_env.apply(spec)?;
        spec.network = enforceable(context, config, self.provider.as_ref(), spec.network)?;
        Ok(spec)
    }
}

/// Refuses what can be refused before a run is created or resumed.
pub(crate) async fn check(
    context: &AssemblyContext,
    config: &Config,
    services: &BrokeredServices,
    script: Option<&str>,
) -> Result<(), AssemblyError> {
    check_attended(context, config)?;
    let provider = create_checked_provider(context, config)?;
    provider.check().await?;
    CommandEnv::new(config, provider.as_ref())?;
    if context.agent.is_none() {
        agents::check(context, config, |profile| services.serves(profile))?;
        let is_scripted = script.is_some();
        agents::check_cost_is_bounded(config, is_scripted, |profile| services.serves(profile))?;
    }
    create_model(config, script)?;
    check_script(context, config, script)?;
    settings(config, script)?;
    Ok(())
}

/// Refuses an unattended run that records: recording allows every connection.
fn check_attended(context: &AssemblyContext, config: &Config) -> Result<(), AssemblyError> {
    let network = &config.settings.sandbox.network;
    let recording = network.policy == PolicyMode::Record && !network.dangerously_record_unattended;
    if recording && !context.surroundings.is_attended() {
        return Err(AssemblyError::usage(
            "`policy = \"record\"` allows every connection, and no person is at the terminal",
        )
        .with_topic(ErrorTopic::Configuration)
        .with_hint("run it from a terminal, or set sandbox.network.dangerously_record_unattended = true"));
    }
    Ok(())
}

/// Refuses a script with an answer that the agent `actions` would send back, when no other call can follow.
fn check_script(
    context: &AssemblyContext,
    config: &Config,
    script: Option<&str>,
) -> Result<(), AssemblyError> {
    let is_for_actions = context.agent.is_none() && config.settings.agent.kind.is_built_in;
    let Some(script) = script.filter(|_| is_for_actions) else {
        return Ok(());
    };
    for (iteration, answer) in Script::parse(script)?.only_answers() {
        check_scripted_answer(answer).map_err(|error| {
            AssemblyError::usage(format!("the script, iteration {iteration}, call 1: {error}")).with_topic(ErrorTopic::Task).with_hint(
                "correct the answer, or add a second call to that iteration: an agent gets one to repair its answer",
            )
        })?;
    }
    Ok(())
}
