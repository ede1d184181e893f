//! What this host is ready for: credentials of agents, keys, providers, and what a first run would use.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::timeout;

use crate::agent::{AGENTS, AgentOptionsError, KnownAgent};
use crate::config::env_vars::{EnvVar, env_vars};
use crate::config::{Config, ConfigOverride, SandboxType, SettingPlace};
use crate::credential::Vault;
use crate::task::Task;
use crate::text::error_chain;

use super::agents::{SET_COMMAND, agent_of_profile, settings_of};
use super::broker::BrokeredServices;
use super::configuration::{self, GivenSettings, TASK_FILE, TaskFile, project_dir};
use super::credentials::{from_environment, open_vault};
use super::provider::create_provider;
use super::repository_lack::RepositoryLack;
use super::{AssemblyContext, AssemblyError, equipment, routes};

/// How long a provider may take to report whether it can be used.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// What to do about an error without a hint.
const TRY_EACH: &str = "`ralph selftest` tries each part and shows which one fails";

/// What this host is ready for.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostReadiness {
    pub(crate) agents: Vec<Readiness>,
    pub(crate) keys: Vec<Readiness>,
    pub(crate) providers: Vec<Readiness>,
    pub(crate) first_run: FirstRun,
}

/// Whether one thing can be used.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Readiness {
    pub(crate) name: String,
    pub(crate) ready: bool,
    /// Where it was found, or why it cannot be used.
    pub(crate) detail: String,
    /// What to do when it is wanted.
    pub(crate) next: Option<String>,
}

/// What a run in this directory would use.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FirstRun {
    pub(crate) agent: &'static str,
    pub(crate) model: String,
    pub(crate) sandbox: SandboxType,
    /// Why it would be refused; `None` when nothing is known to be missing.
    pub(crate) problem: Option<String>,
    /// What to do next.
    pub(crate) next: Option<String>,
}

impl Readiness {
    fn ready(name: &str, detail: String) -> Self {
        Self {
            name: name.to_owned(),
            ready: true,
            detail,
            next: None,
        }
    }

    fn missing(name: &str, detail: impl Into<String>, next: Option<String>) -> Self {
        Self {
            name: name.to_owned(),
            ready: false,
            detail: detail.into(),
            next,
        }
    }
}

/// Looks at everything that a run could use, with the configuration and the task of the current directory.
pub(crate) async fn look(
    context: &AssemblyContext,
    given: &GivenSettings,
) -> Result<HostReadiness, AssemblyError> {
    // One that cannot be parsed is for `ralph lint`.
    let task = TaskFile::here(context).ok().flatten();
    let config = configuration::load_silently(context, task.as_ref(), given)?;
    let vault = open_vault(context)?;
    let mut agents = Vec::new();
    for agent in AGENTS.iter().copied() {
        agents.push(credential_of(agent, &config, &vault).await);
    }
    let mut providers = Vec::new();
    for kind in SandboxType::ALL {
        providers.push(provider(context, given, kind).await);
    }
    let first_run = first_run(context, &config, task.as_ref(), &agents).await;
    Ok(HostReadiness {
        agents,
        keys: keys(&config),
        providers,
        first_run,
    })
}

/// Whether there is a credential for an agent. The program that the configuration names may need none.
async fn credential_of(agent: KnownAgent, config: &Config, vault: &Vault) -> Readiness {
    if agent.is_built_in {
        let profile = &config.settings.default_profile;
        return match routes::missing(config, profile) {
            None => Readiness::ready(
                agent.name,
                format!("built in; the profile `{profile}` can be called"),
            ),
            Some(missing) => Readiness::missing(agent.name, missing.why, Some(missing.next_step)),
        };
    }
    if agent.program.is_none() {
        return match config.settings.agent.custom.command.first() {
            Some(program) => Readiness::ready(agent.name, format!("runs `{program}`")),
            None => Readiness::missing(
                agent.name,
                AgentOptionsError::NoCommand.to_string(),
                Some(SET_COMMAND.to_owned()),
            ),
        };
    }
    let kinds = agent.service.map_or(&[][..], |service| service.credentials);
    for kind in kinds.iter().copied() {
        match vault.load(kind).await {
            Ok(Some(_)) => return Readiness::ready(agent.name, format!("{kind} is stored")),
            Ok(None) if from_environment(config, kind).is_some() => {
                return Readiness::ready(agent.name, format!("{kind} is in `{}`", kind.variable));
            }
            Ok(None) => {}
            Err(error) => return Readiness::missing(agent.name, error_chain(&error), None),
        }
    }
    let set = agent
        .key_variables
        .iter()
        .find(|key| config.credential(key.name).is_some());
    if let Some(key) = set {
        return Readiness::ready(agent.name, format!("a credential is in `{}`", key.name));
    }
    let next = match (kinds.first(), agent.key_variables.first()) {
        (Some(kind), _) => {
            let store = format!("`ralph token store --agent {}`", agent.name);
            Some(format!("store {kind} with {store}, or set `{}`", kind.variable))
        }
        (None, Some(key)) => Some(format!("set `{}`", key.name)),
        (None, None) => None,
    };
    Readiness::missing(agent.name, "no credential found", next)
}

/// The variables that hold credentials.
fn keys(config: &Config) -> Vec<Readiness> {
    let rows = config.rows();
    let secrets = env_vars().filter(EnvVar::is_secret);
    secrets
        .map(|var| {
            let key = format!("env.{}", var.name);
            match rows.iter().find(|row| row.key == key) {
                Some(row) => Readiness::ready(var.name, format!("set: {}", row.source)),
                None => Readiness::missing(var.name, "not set", None),
            }
        })
        .collect()
}

/// The providers that can create sandboxes here, by name. `local` isolates nothing, so it counts only where it is configured.
pub(crate) async fn usable_providers(
    context: &AssemblyContext,
    given: &GivenSettings,
    config: &Config,
) -> Vec<&'static str> {
    let mut names = Vec::new();
    for kind in SandboxType::ALL {
        let is_wanted = kind != SandboxType::Local || config.provider() == SandboxType::Local;
        if is_wanted && provider(context, given, kind).await.ready {
            names.push(kind.name());
        }
    }
    names
}

/// Whether sandboxes of this kind can be created.
pub(crate) async fn provider(
    context: &AssemblyContext,
    given: &GivenSettings,
    kind: SandboxType,
) -> Readiness {
    let checked = async {
        let mut given = given.clone();
        let setting = |key: &str, value: &str| ConfigOverride {
            key: key.to_owned(),
            value: value.to_owned(),
            place: SettingPlace::Flag(key.to_owned()),
        };
        given.overrides.push(setting("sandbox.type", kind.name()));
        if kind == SandboxType::Tart {
            // It has no default image, and any will do for the check.
            given.overrides.push(setting("sandbox.image", "any"));
        }
        let project = project_dir(context.surroundings.dir());
        let config = configuration::load_quietly(context, project, &given)?;
        let provider = create_provider(context, &config)?;
        provider.check().await?;
        Ok::<_, AssemblyError>(provider.seal().await?)
    };
    match timeout(CHECK_TIMEOUT, checked).await {
        Ok(Ok(None)) => Readiness::ready(kind.name(), "ready".to_owned()),
        Ok(Ok(Some(seal))) => Readiness::ready(kind.name(), format!("ready; the seal of networks is {seal}")),
        Ok(Err(error)) => {
            let next = error.hint().map(ToOwned::to_owned);
            Readiness::missing(kind.name(), error_chain(&error), next)
        }
        Err(_) => {
            let seconds = CHECK_TIMEOUT.as_secs();
            let next = "start it, or check its address; then `ralph doctor env` again".to_owned();
            Readiness::missing(
                kind.name(),
                format!("it did not answer within {seconds} s"),
                Some(next),
            )
        }
    }
}

/// Why a run would be refused, and what to do next.
struct RunObstacle {
    problem: String,
    next: String,
}

async fn first_run(
    context: &AssemblyContext,
    config: &Config,
    task: Option<&TaskFile>,
    agents: &[Readiness],
) -> FirstRun {
    let agent = agent_of_profile(config, &config.settings.default_profile);
    let obstacle = match unusable_services(context, config).await {
        Some(obstacle) => Some(obstacle),
        None => match missing_for_agent(context, config, agent, agents) {
            Some(obstacle) => Some(obstacle),
            None => missing_in_repository(context, task).await,
        },
    };
    let (problem, next) = match obstacle {
        Some(RunObstacle { problem, next }) => (Some(problem), next),
        None if has_task(context) => (
            None,
            "`ralph lint` checks the task, and `ralph run` works on it".to_owned(),
        ),
        None => (None, "`ralph init` writes a task to edit".to_owned()),
    };
    FirstRun {
        agent: agent.name,
        model: model_of(config, agent),
        sandbox: config.provider(),
        problem,
        next: Some(next),
    }
}

/// The model of the default profile, for people.
fn model_of(config: &Config, agent: KnownAgent) -> String {
    let profile = &config.settings.default_profile;
    let of_profile = settings_of(config, profile).and_then(|model| model.agent_model.as_ref());
    match (
        agent.is_built_in,
        of_profile.or(config.settings.agent.model.as_ref()),
    ) {
        (false, Some(model)) => model.clone(),
        (false, None) => "its default model".to_owned(),
        (true, _) => {
            let model = config.profiles.get(profile).map(|profile| &profile.litellm_model);
            format!("`{}` (profile `{profile}`)", model.map_or("", String::as_str))
        }
    }
}

/// What the checks of a run say of provider, budget and model services.
async fn unusable_services(context: &AssemblyContext, config: &Config) -> Option<RunObstacle> {
    let checked = async {
        let services = BrokeredServices::new(context, config).await?;
        equipment::check(context, config, &services, None).await
    };
    match timeout(CHECK_TIMEOUT, checked).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(RunObstacle {
            problem: error_chain(&error),
            next: error.hint().unwrap_or(TRY_EACH).to_owned(),
        }),
        Err(_) => {
            let (sandbox, seconds) = (config.provider().name(), CHECK_TIMEOUT.as_secs());
            Some(RunObstacle {
                problem: format!("the provider `{sandbox}` did not answer within {seconds} s"),
                next: format!(
                    "start what `{sandbox}` needs, or use another provider: `ralph run --type PROVIDER`"
                ),
            })
        }
    }
}

/// A credential of the agent, or its program on `local`. Elsewhere the program is in the image.
fn missing_for_agent(
    context: &AssemblyContext,
    config: &Config,
    agent: KnownAgent,
    agents: &[Readiness],
) -> Option<RunObstacle> {
    if let Some(row) = agents.iter().find(|row| row.name == agent.name && !row.ready) {
        return Some(RunObstacle {
            problem: row.detail.clone(),
            next: row.next.as_deref().unwrap_or(TRY_EACH).to_owned(),
        });
    }
    let is_local = config.provider() == SandboxType::Local;
    let program = agent.program.filter(|_| is_local)?;
    if context.surroundings.host().has_program(program) {
        return None;
    }
    Some(RunObstacle {
        problem: format!("there is no program `{program}` on the PATH, which the agent needs on `local`"),
        next: agent.install.map_or_else(
            || TRY_EACH.to_owned(),
            |install| format!("`{install}` installs it; or use a provider whose image has it"),
        ),
    })
}

/// A commit to start from, unless the task names a repository elsewhere.
async fn missing_in_repository(context: &AssemblyContext, task: Option<&TaskFile>) -> Option<RunObstacle> {
    let task = task.and_then(|file| Task::parse(&file.text).ok());
    if task.is_some_and(|task| task.frontmatter.repo_url.is_some()) {
        return None;
    }
    let surroundings = &context.surroundings;
    let lack = RepositoryLack::find(&surroundings.host(), surroundings.dir(), None).await?;
    Some(match lack {
        RepositoryLack::Commit { lack, commands } => RunObstacle {
            problem: lack.to_owned(),
            next: if has_task(context) {
                format!("`{commands}`")
            } else {
                // It keeps `.env` out of the commit.
                "`ralph init` writes a task to edit, and says how to make the commit".to_owned()
            },
        },
        RepositoryLack::Usable { reason, hint } => RunObstacle {
            problem: reason,
            next: hint.unwrap_or(TRY_EACH).to_owned(),
        },
    })
}

fn has_task(context: &AssemblyContext) -> bool {
    let project = project_dir(context.surroundings.dir());
    project.join(TASK_FILE).exists()
}
