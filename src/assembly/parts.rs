//! From the configuration to the parts of a run.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::{Config, ForgeType, NetworkPolicy};
use crate::event::{Event, EventSink, Fanout};
use crate::model::{
    CallTimeouts, EndpointError, Model, ModelEndpoint, OpenAiCompatible, RoutedModel, Script, ScriptedModel,
};
use crate::runner::RunParts;
use crate::scm::{Forge, LocalForge, Repository};
use crate::secret::{Redactor, Secret};
use crate::state::RunDir;

use super::broker::{Brokered, Services};
use super::error::{AssemblyError, io};
use super::provider::{connected_with, provider, report_limits};
use super::{AssemblyContext, agents, preflight, settings};

/// A run put together.
pub(crate) struct Assembled {
    pub(crate) parts: RunParts,
    /// What keeps the credentials of its agents here; it lasts as long as this does.
    pub(crate) brokered: Option<Brokered>,
}

/// Puts the parts of a run together.
pub(crate) async fn parts(
    context: &AssemblyContext,
    config: &Config,
    run: &RunDir,
    sink: Arc<dyn EventSink>,
) -> Result<Assembled, AssemblyError> {
    // Named, so that whoever takes the run up after a crash finds what this process started.
    let host = context.surroundings.host().with_name(run.path());
    let repo = Repository::open(host.clone(), &run.facts().repository).await?;
    let log = EventLog::open(&run.events_file())?;
    let redactor = Redactor::new(config.secrets());
    let services = Services::of(context, config).await?;
    let brokered = services.open(config, run.spending_file(), &redactor).await?;
    let provider = connected_with(context, config, brokered.as_ref())?;
    report_limits(context, config, provider.as_ref());
    let access = |profile: &str| brokered.as_ref()?.access(profile);
    if let (None, Some(notice)) = (access(&config.settings.default_profile), agents::notice(config)) {
        context.reporter.warn(&notice);
    }
    for mount in config.mounts() {
        context.reporter.inform(&format!(
            "mount: the sandbox reads {} as {}",
            mount.source.display(),
            mount.target.display()
        ));
    }
    let parts = RunParts {
        provider,
        agents: agents::agents(config, access)?,
        model: model(config, run.facts().script.as_deref())?,
        forge: forge(config, repo, run)?,
        sink: Arc::new(Fanout(vec![sink, Arc::new(log)])),
        clock: crate::clock::system(),
        host,
        redactor,
        owner: context.surroundings.owner(),
        metering: brokered.as_ref().and_then(|brokered| brokered.metering.clone()),
        preconditions: match run.facts().script {
            Some(_) => Vec::new(),
            None => preflight::preconditions(context, config, brokered.as_ref()).await?,
        },
    };
    Ok(Assembled { parts, brokered })
}

/// Whether the parts of a run can be had at all, before there is a run to put them together for.
pub(crate) async fn check(
    context: &AssemblyContext,
    config: &Config,
    script: Option<&str>,
) -> Result<(), AssemblyError> {
    check_attended(context, config)?;
    provider(context, config)?.check().await?;
    let services = Services::of(context, config).await?;
    agents::check(config, |profile| services.serve(profile))?;
    agents::check_cost_is_bounded(config, |profile| services.serve(profile))?;
    model(config, script)?;
    check_forge(config)?;
    settings(config)?;
    Ok(())
}

/// Refuses to record the network of a run that nobody watches: recording allows everything.
fn check_attended(context: &AssemblyContext, config: &Config) -> Result<(), AssemblyError> {
    let network = &config.settings.sandbox.network;
    let recording = network.policy == NetworkPolicy::Record && !network.dangerously_record_unattended;
    if recording && !context.surroundings.attended {
        return Err(AssemblyError::usage(
            "`policy = \"record\"` allows everything, and nobody is at the terminal",
        )
        .with_hint("run it from a terminal, or set sandbox.network.dangerously_record_unattended = true"));
    }
    Ok(())
}

/// Appends events to the run's own log.
#[derive(Debug)]
struct EventLog(Mutex<File>);

impl EventLog {
    fn open(path: &Path) -> Result<Self, AssemblyError> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        Ok(Self(Mutex::new(file.map_err(io("open", path))?)))
    }
}

impl EventSink for EventLog {
    fn emit(&self, event: &Event) {
        if let Ok(text) = serde_json::to_string(event) {
            let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // A log that cannot be written must not end the run: the journal is what counts.
            let _ = file.write_all(format!("{text}\n").as_bytes());
        }
    }
}

/// The model of a run: a script, or the endpoints of the configuration.
pub(crate) fn model(config: &Config, script: Option<&str>) -> Result<Arc<dyn Model>, AssemblyError> {
    if let Some(script) = script {
        let script = Script::parse(script)?;
        return Ok(Arc::new(ScriptedModel::new(script)));
    }
    let usual = &config.settings.model_endpoint.base_url;
    let mut by_profile = BTreeMap::new();
    for (name, model) in &config.settings.models {
        if model.base_url.is_none() && model.api_key_env.is_none() {
            continue;
        }
        let key = match &model.api_key_env {
            Some(variable) => config.credential(variable),
            None => config.model_api_key(),
        };
        let address = model.base_url.as_ref().unwrap_or(usual);
        let place = format!("models.{name}.base_url");
        by_profile.insert(name.clone(), client(&place, address, key)?);
    }
    let usual = client("model_endpoint.base_url", usual, config.model_api_key())?;
    Ok(Arc::new(RoutedModel::new(usual, by_profile)))
}

fn client(place: &str, address: &str, key: Option<Secret>) -> Result<Arc<dyn Model>, AssemblyError> {
    let usage = |error: EndpointError| AssemblyError::usage(format!("{place}: {error}"));
    let endpoint = ModelEndpoint::parse(address).map_err(usage)?;
    let client = OpenAiCompatible::new(endpoint, key, CallTimeouts::default()).map_err(usage)?;
    Ok(Arc::new(client))
}

fn forge(config: &Config, repo: Repository, run: &RunDir) -> Result<Arc<dyn Forge>, AssemblyError> {
    check_forge(config)?;
    Ok(Arc::new(LocalForge::new(repo, run.pull_request_file())))
}

fn check_forge(config: &Config) -> Result<(), AssemblyError> {
    match config.settings.forge.kind {
        ForgeType::Local => Ok(()),
        ForgeType::Github => Err(
            AssemblyError::usage("the forge `github` is not part of this version yet")
                .with_hint("`[forge] type = \"local\"` leaves a branch and a pull-request file"),
        ),
    }
}
