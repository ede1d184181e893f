//! From the configuration to the parts of a run.

mod settings;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::config::{
    self, AgentName, Config, FilePlace, ForgeType, Inputs, Layer, OnUnenforceable, Override, Place,
    SandboxType,
};
use crate::engine;
use crate::event::{EventSink, Fanout};
use crate::model::{
    CallTimeouts, EndpointError, Model, ModelEndpoint, OpenAiCompatible, RoutedModel, Script, ScriptedModel,
};
use crate::network::{Clients, Policy};
use crate::runner::RunParts;
use crate::sandbox::connect::{Choice, check_policy, connect};
use crate::sandbox::daytona::{DaytonaOptions, DaytonaPrices, Waiting};
use crate::sandbox::docker::DockerOptions;
use crate::sandbox::docker_sandbox::DockerSandboxOptions;
use crate::sandbox::local::LocalOptions;
use crate::sandbox::machine::MachineOptions;
use crate::sandbox::tart::TartOptions;
use crate::sandbox::{Provider, SandboxError};
use crate::scm::{Forge, LocalForge, Repository};
use crate::secret::{Redactor, Secret};
use crate::state::RunDir;
use crate::task::Task;

use super::broker::{Brokered, Services};
use super::error::{CliError, io};
use super::network;
use super::terminal::{EventLog, JsonLines, Terminal};
use super::{Context, agents, preflight};
pub(super) use settings::settings;

/// A task file, where it is, and the directory whose configuration goes with it.
pub(super) struct TaskFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) project: PathBuf,
}

/// Reads the configuration. `flags` are the command's own, by key; `--set` adds to them.
pub(super) fn configuration(
    context: &Context,
    task: Option<&TaskFile>,
    flags: &[Given],
) -> Result<Config, CliError> {
    let config = config::load(&inputs(context, task, flags)?)?;
    for warning in config.warnings() {
        context.ui.say(format_args!("warning: {warning}"));
    }
    Ok(config)
}

fn inputs(context: &Context, task: Option<&TaskFile>, flags: &[Given]) -> Result<Inputs, CliError> {
    let surroundings = &context.surroundings;
    let mut all = flags.to_vec();
    all.extend(context.global.given()?);
    let flags = all.into_iter().map(|given| Override {
        key: given.key,
        value: given.value,
        place: Place::Flag(given.flag),
    });
    Ok(Inputs {
        env: surroundings.env.clone(),
        user_file: surroundings.user_config(),
        project_dir: task.map_or_else(|| project_dir(&surroundings.cwd), |task| task.project.clone()),
        config_file: context
            .global
            .config
            .as_ref()
            .map(|file| surroundings.cwd.join(file)),
        task: task.map(task_overrides).transpose()?.unwrap_or_default(),
        flags: flags.collect(),
    })
}

/// The configuration without a task and without telling its warnings, for a look at one setting.
pub(super) fn configuration_quietly(context: &Context, project: PathBuf) -> Result<Config, CliError> {
    let inputs = Inputs {
        project_dir: project,
        ..inputs(context, None, &[])?
    };
    config::load(&inputs).map_err(Into::into)
}

/// The directory whose configuration a run was begun with; where that is gone or elsewhere, the one at hand.
pub(super) fn project_of(context: &Context, run: &RunDir) -> PathBuf {
    let known = run.facts().project.clone().filter(|dir| dir.is_dir());
    known.unwrap_or_else(|| project_dir(&context.surroundings.cwd))
}

/// The directory that holds the project's configuration: the nearest one upwards with a `ralph.toml` or a `.git`.
pub(super) fn project_dir(cwd: &Path) -> PathBuf {
    let marked = |dir: &&Path| dir.join("ralph.toml").exists() || dir.join(".git").exists();
    cwd.ancestors().find(marked).unwrap_or(cwd).to_owned()
}

fn task_overrides(file: &TaskFile) -> Result<Vec<Override>, CliError> {
    let task = Task::parse(&file.text)?;
    let place = Place::File(FilePlace {
        path: file.path.clone(),
        line: 1,
        column: 1,
    });
    let pairs = task.frontmatter.overrides().into_iter();
    Ok(pairs
        .map(|(key, value)| Override {
            key: key.to_owned(),
            value,
            place: place.clone(),
        })
        .collect())
}

/// A setting given on the command line.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// The flag, as a person typed it.
    pub(super) flag: String,
    /// The configuration key.
    pub(super) key: String,
    /// The value.
    pub(super) value: String,
}

impl Given {
    /// Those of these flags that were given: flag, key and value.
    pub(super) fn of_flags<const N: usize>(flags: [(&str, &str, Option<String>); N]) -> Vec<Self> {
        let given = |(flag, key, value): (&str, &str, Option<String>)| {
            Some(Self {
                flag: flag.to_owned(),
                key: key.to_owned(),
                value: value?,
            })
        };
        flags.into_iter().filter_map(given).collect()
    }
}

impl super::Global {
    /// What `--set` gives.
    pub(super) fn given(&self) -> Result<Vec<Given>, CliError> {
        let split = |text: &String| {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                CliError::usage(format!("`--set {text}` is no KEY=VALUE"))
                    .hint("for example `--set budget.max_iterations=5`; `ralph config show` lists the keys")
            })?;
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            Ok(Given {
                flag: format!("--set {key}"),
                key,
                value,
            })
        };
        self.set.iter().map(split).collect()
    }
}

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    /// Lines for a person.
    Lines,
    /// Lines for a person, with the output of commands.
    Everything,
    /// JSON on stdout.
    Json,
}

/// A run put together.
pub(super) struct Assembled {
    pub(super) parts: RunParts,
    /// What keeps the credentials of its agents here; it lasts as long as this does.
    pub(super) brokered: Option<Brokered>,
}

/// Puts the parts of a run together.
pub(super) async fn parts(
    context: &Context,
    config: &Config,
    run: &RunDir,
    show: Show,
) -> Result<Assembled, CliError> {
    // Named, so that whoever takes the run up after a crash finds what this process started.
    let host = context.surroundings.host().with_name(run.path());
    let repo = Repository::open(host.clone(), &run.facts().repository).await?;
    let log = run.events_file();
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&log)
        .map_err(io("open", &log))?;
    let shown: Arc<dyn EventSink> = match show {
        Show::Json => Arc::new(JsonLines(context.ui)),
        Show::Lines | Show::Everything => Arc::new(Terminal {
            ui: context.ui,
            verbose: show == Show::Everything,
        }),
    };
    let redactor = Redactor::new(config.secrets());
    let services = Services::of(context, config).await?;
    let brokered = services.open(config, run.spending_file(), &redactor).await?;
    let provider = connected_with(context, config, brokered.as_ref())?;
    tell_limits(context, config, provider.as_ref());
    let access = |profile: &str| brokered.as_ref()?.access(profile);
    if let (None, Some(notice)) = (access(&config.settings.default_profile), agents::notice(config)) {
        context.ui.say(format_args!("warning: {notice}"));
    }
    for mount in config.mounts() {
        context.ui.say(format_args!(
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
        sink: Arc::new(Fanout(vec![shown, Arc::new(EventLog(Mutex::new(file)))])),
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
pub(super) async fn check(context: &Context, config: &Config, script: Option<&str>) -> Result<(), CliError> {
    network::check_attended(config)?;
    provider(context, config)?.check().await?;
    let services = Services::of(context, config).await?;
    agents::check(config, |profile| services.serve(profile))?;
    agents::check_cost_is_bounded(config, |profile| services.serve(profile))?;
    model(config, script)?;
    check_forge(config)?;
    settings(config)?;
    Ok(())
}

/// The provider, once it is sure that it can enforce what is asked of it.
pub(super) fn provider(context: &Context, config: &Config) -> Result<Arc<dyn Provider>, CliError> {
    let provider = connected(context, config)?;
    match check_policy(provider.as_ref(), &config.network_policy(&Clients::NONE)) {
        Err(error) if !may_go_on(config) => Err(unenforceable(error)),
        _ => Ok(provider),
    }
}

/// The provider, whatever it can enforce.
pub(super) fn connected(context: &Context, config: &Config) -> Result<Arc<dyn Provider>, CliError> {
    Ok(connect(&choice(context, config)?)?)
}

/// The same, with the credentials that it keeps.
pub(super) fn connected_with(
    context: &Context,
    config: &Config,
    brokered: Option<&Brokered>,
) -> Result<Arc<dyn Provider>, CliError> {
    let choice = match (choice(context, config)?, brokered) {
        (Choice::Daytona(options), Some(brokered)) => Choice::Daytona(DaytonaOptions {
            secrets: brokered.handed_over.clone(),
            ..options
        }),
        (other, _) => other,
    };
    Ok(connect(&choice)?)
}

/// Which provider is meant.
pub(super) fn choice(context: &Context, config: &Config) -> Result<Choice, CliError> {
    Ok(match config.provider() {
        SandboxType::Local => Choice::Local(LocalOptions {
            base: context.surroundings.runs()?.dir().to_owned(),
            path: context
                .surroundings
                .var("PATH")
                .unwrap_or("/usr/bin:/bin")
                .to_owned(),
            passthrough: config.passthrough(),
        }),
        SandboxType::Docker => Choice::Docker(docker(context)?),
        SandboxType::DockerSandbox => Choice::DockerSandbox(DockerSandboxOptions {
            machines: machines(context, "docker-sandboxes")?,
        }),
        SandboxType::Tart => Choice::Tart(tart(context, config)?),
        SandboxType::Daytona => Choice::Daytona(daytona(context, config)?),
    })
}

/// What the `docker` provider needs to know.
pub(super) fn docker(context: &Context) -> Result<DockerOptions, CliError> {
    let surroundings = &context.surroundings;
    Ok(DockerOptions {
        base: surroundings.data_dir()?.join("sandboxes"),
        surroundings: engine::EngineEnvironment {
            env: surroundings.env.clone(),
            home: surroundings.var("HOME").map(PathBuf::from),
        },
        guest_dir: surroundings.data_dir()?.join("guest"),
        cache: surroundings.cache_dir()?.join("image-files"),
        host: surroundings.host(),
        machine: surroundings.owner().host,
    })
}

/// Where machines that a program makes are kept.
fn machines(context: &Context, dir: &str) -> Result<MachineOptions, CliError> {
    let surroundings = &context.surroundings;
    Ok(MachineOptions {
        base: surroundings.data_dir()?.join(dir),
        guest_dir: surroundings.data_dir()?.join("guest"),
        host: surroundings.machine_host(),
        machine: surroundings.owner().host,
    })
}

/// What the `tart` provider needs to know.
fn tart(context: &Context, config: &Config) -> Result<TartOptions, CliError> {
    let script = project_dir(&context.surroundings.cwd).join(".agent-loop/dependencies.sh");
    let dependencies = match std::fs::read_to_string(&script) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(io("read", &script))?,
    };
    Ok(TartOptions {
        machines: machines(context, "tart")?,
        dependencies,
        boot_patience: config.settings.timers.boot,
    })
}

/// What the `daytona` provider needs to know.
fn daytona(context: &Context, config: &Config) -> Result<DaytonaOptions, CliError> {
    let (surroundings, settings) = (&context.surroundings, &config.settings.sandbox.daytona);
    let url = surroundings
        .var("DAYTONA_API_URL")
        .unwrap_or(DaytonaOptions::API_URL);
    let dockerfile = settings.dockerfile.as_ref().map(|name| {
        if config.settings.sandbox.image.is_some() {
            return Err(CliError::usage(
                "`sandbox.image` and `sandbox.daytona.dockerfile` both say what a sandbox starts from",
            ));
        }
        let path = project_dir(&surroundings.cwd).join(name);
        std::fs::read_to_string(&path).map_err(io("read", &path))
    });
    let ui = context.ui;
    Ok(DaytonaOptions {
        waiting: Waiting::told_to(move |what| ui.say(format_args!("  waiting: {what}"))),
        target: surroundings.var("DAYTONA_TARGET").map(ToOwned::to_owned),
        dockerfile: dockerfile.transpose()?,
        prices: DaytonaPrices {
            cpu_hour: settings.usd_per_cpu_hour,
            memory_gb_hour: settings.usd_per_memory_gb_hour,
            disk_gb_hour: settings.usd_per_disk_gb_hour,
        },
        ..DaytonaOptions::new(
            url,
            config.credential("DAYTONA_API_KEY"),
            surroundings.owner().host,
        )
    })
}

/// Tells what the provider does not hold.
fn tell_limits(context: &Context, config: &Config, provider: &dyn Provider) {
    let capabilities = provider.capabilities();
    let spends = agents::agent_name(config, &config.settings.default_profile) != AgentName::Actions;
    let spending = capabilities.spending_notice().filter(|_| spends);
    for notice in capabilities.notice().into_iter().chain(spending) {
        context.ui.say(format_args!("warning: {notice}"));
    }
}

/// What a sandbox may reach, as far as the provider holds it: all of it, or, where a person chose to go on without, nothing.
pub(super) fn enforceable(
    context: &Context,
    config: &Config,
    (provider, policy): (&dyn Provider, Policy),
) -> Result<Policy, CliError> {
    match check_policy(provider, &policy) {
        Ok(()) => Ok(policy),
        Err(error) if may_go_on(config) => {
            context
                .ui
                .say(format_args!("warning: {error}: the network policy does not hold"));
            Ok(Policy::allow_all())
        }
        Err(error) => Err(unenforceable(error)),
    }
}

/// A policy nobody asked for may give way to a provider somebody chose; one that was asked for may not.
fn may_go_on(config: &Config) -> bool {
    let asked_for = config
        .origin("sandbox.network.policy")
        .is_some_and(|origin| origin.layer != Layer::Default);
    config.settings.sandbox.network.on_unenforceable == OnUnenforceable::Warn || !asked_for
}

fn unenforceable(error: SandboxError) -> CliError {
    CliError::from(error)
        .hint("choose another provider, or set sandbox.network.policy = \"allow-all\" or on_unenforceable = \"warn\"")
}

pub(super) fn model(config: &Config, script: Option<&str>) -> Result<Arc<dyn Model>, CliError> {
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

fn client(place: &str, address: &str, key: Option<Secret>) -> Result<Arc<dyn Model>, CliError> {
    let usage = |error: EndpointError| CliError::usage(format!("{place}: {error}"));
    let endpoint = ModelEndpoint::parse(address).map_err(usage)?;
    let client = OpenAiCompatible::new(endpoint, key, CallTimeouts::default()).map_err(usage)?;
    Ok(Arc::new(client))
}

fn forge(config: &Config, repo: Repository, run: &RunDir) -> Result<Arc<dyn Forge>, CliError> {
    check_forge(config)?;
    Ok(Arc::new(LocalForge::new(repo, run.pull_request_file())))
}

fn check_forge(config: &Config) -> Result<(), CliError> {
    match config.settings.forge.kind {
        ForgeType::Local => Ok(()),
        ForgeType::Github => Err(
            CliError::usage("the forge `github` is not part of this version yet")
                .hint("`[forge] type = \"local\"` leaves a branch and a pull-request file"),
        ),
    }
}
