//! Which agent, provider and models `ralph init` writes down.

use std::io::BufRead;

use crate::agent::{AGENTS, AgentRecord, KnownAgent};
use crate::assembly::credentials::open_vault;
use crate::assembly::readiness;
use crate::config::{Config, SandboxType};
use crate::exec::Host;
use crate::model::{DIRECT_SERVICES, DirectService};
use crate::task::starter;

use super::super::environment::ask_engine;
use super::super::{CliError, Context};

/// Something that can be chosen, and what it lacks here.
struct InitOption {
    name: &'static str,
    missing: Option<String>,
    /// What to know when it is chosen.
    remark: String,
    /// What an agent lacks on `local` alone; elsewhere its program is in the image.
    missing_on_local: Option<String>,
}

/// What can be chosen on this host.
pub(super) struct InitOptions {
    agents: Vec<InitOption>,
    providers: Vec<InitOption>,
    models: [&'static str; 3],
}

/// What was chosen.
pub(super) struct InitChoices {
    agent: KnownAgent,
    provider: &'static str,
    remarks: Vec<String>,
    models: [&'static str; 3],
}

impl InitOptions {
    /// Looks for keys, logins, programs and a container engine. The best comes first.
    pub(super) async fn find(context: &Context, config: Option<&Config>) -> Result<Self, CliError> {
        let has_key = |name: &str| {
            let in_config = || config.and_then(|config| config.credential(name)).is_some();
            context.surroundings().var(name).is_some() || in_config()
        };
        let with_key = |service: &&DirectService| service.key_variable.is_some_and(has_key);
        let services = || DIRECT_SERVICES.iter();
        let found = services()
            .filter(with_key)
            .find_map(|service| service.starter_models);
        let models = found
            .or_else(|| services().find_map(|service| service.starter_models))
            .ok_or_else(|| CliError::runtime("no service has models to start with"))?;
        let vault = open_vault(&context.assembly)?;
        let host = context.surroundings().host();
        let mut agents = Vec::new();
        for agent in AGENTS {
            let mut ready = if agent.is_built_in {
                found.is_some()
            } else {
                agent.key_variables.iter().any(|key| has_key(key.name))
            };
            for kind in agent
                .service
                .into_iter()
                .flat_map(|service| service.credentials.iter().copied())
            {
                ready |= vault.load(kind).await?.is_some();
            }
            agents.push(agent_option(agent, ready, &host));
        }
        // Without any key, a program that is installed shows which account there is.
        let is_installed = |option: &InitOption| {
            let agent = AGENTS.iter().find(|agent| agent.name == option.name);
            agent
                .and_then(|agent| agent.program)
                .is_some_and(|program| host.has_program(program))
        };
        agents.sort_by_key(|option| {
            let is_missing = option.missing.is_some();
            (
                is_missing,
                is_missing && !is_installed(option),
                option.name != "actions",
            )
        });
        Ok(Self {
            agents,
            providers: providers(context, &has_key).await,
            models,
        })
    }

    /// Takes what the caller gave; asks on a terminal for the rest, and otherwise takes the best.
    pub(super) fn choose(
        self,
        context: &Context,
        agent: Option<&str>,
        provider: Option<&str>,
    ) -> Result<InitChoices, CliError> {
        let agent = pick(context, "agent", &self.agents, agent)?;
        let provider = pick(context, "sandbox", &self.providers, provider)?;
        InitChoices::new(agent, provider, vec![provider.remark.clone()], self.models)
    }

    /// Takes what the configuration says, which is kept.
    pub(super) fn of_config(self, config: &Config) -> Result<InitChoices, CliError> {
        let agent = find("agent", &self.agents, config.settings.agent.kind.name)?;
        let provider = find("sandbox", &self.providers, config.provider().name())?;
        InitChoices::new(agent, provider, Vec::new(), self.models)
    }
}

impl InitChoices {
    /// A choice with these remarks, and what it lacks here.
    fn new(
        agent: &InitOption,
        provider: &InitOption,
        mut remarks: Vec<String>,
        models: [&'static str; 3],
    ) -> Result<Self, CliError> {
        for option in [agent, provider] {
            let missing = option.missing.iter();
            remarks.extend(missing.map(|missing| format!("`{}` needs {missing}.", option.name)));
        }
        if let Some(missing) = agent
            .missing_on_local
            .as_ref()
            .filter(|_| provider.name == "local")
        {
            remarks.push(format!("`{}` on `local` needs {missing}.", agent.name));
        }
        let known = agent.name.parse();
        Ok(Self {
            agent: known.map_err(|_| CliError::usage(format!("there is no agent `{}`", agent.name)))?,
            provider: provider.name,
            remarks,
            models,
        })
    }

    pub(super) fn models(&self) -> [&'static str; 3] {
        self.models
    }

    /// What to say after everything is written.
    pub(super) fn remarks(&self) -> impl Iterator<Item = &str> {
        self.remarks.iter().map(String::as_str)
    }

    /// Whether a run of the agent needs a limit on tokens: what a program reports of its cost is not trusted.
    pub(super) fn needs_token_limit(&self) -> bool {
        !self.agent.is_built_in
    }

    /// The text of `ralph.toml`.
    pub(super) fn config(&self) -> String {
        let text = match self.provider {
            "docker" => starter::CONFIG.to_owned(),
            "local" => starter::LOCAL_CONFIG.to_owned(),
            other => {
                let image = match other {
                    "tart" => "\nimage = \"ghcr.io/cirruslabs/macos-tahoe-base:latest\"",
                    _ => "",
                };
                let of_docker = "type = \"docker\"            # a hardened container behind a gateway; \"local\" isolates nothing";
                starter::CONFIG.replacen(of_docker, &format!("type = \"{other}\"{image}"), 1)
            }
        };
        text.replacen(
            "name = \"actions\"",
            &format!("name = \"{}\"", self.agent.name),
            1,
        )
    }
}

fn agent_option(agent: &'static AgentRecord, ready: bool, host: &Host) -> InitOption {
    let name = agent.name;
    let missing = if agent.is_built_in {
        let keys: Vec<&str> = DIRECT_SERVICES
            .iter()
            .filter_map(|service| service.key_variable)
            .collect();
        format!(
            "one key in `.env` or the environment: {}; or a model of Ollama in config/models.yaml, which needs none",
            keys.join(", ")
        )
    } else if agent.program.is_none() {
        "its command in `ralph.toml`: [agent.custom] command".to_owned()
    } else {
        format!("a credential: `ralph token store --agent {name}`, or its key in `.env`")
    };
    let absent = agent.program.filter(|program| !host.has_program(program));
    let install = absent.and(agent.install);
    InitOption {
        name,
        missing: (!ready).then_some(missing),
        remark: String::new(),
        missing_on_local: install.map(|install| format!("its program: `{install}`")),
    }
}

async fn providers(context: &Context, has_key: &impl Fn(&str) -> bool) -> Vec<InitOption> {
    let engine = ask_engine(context).await;
    let host = context.surroundings().host();
    let option = |name, missing: Option<String>, remark: String| InitOption {
        name,
        missing,
        remark,
        missing_on_local: None,
    };
    let plain = |name: &'static str, missing: Option<&str>| {
        option(
            name,
            missing.map(str::to_owned),
            format!("ralph.toml sets `{name}` as the sandbox."),
        )
    };
    let local = match &engine {
        Ok(_) => "warning: ralph.toml sets `local` as the sandbox, which isolates nothing.".to_owned(),
        Err(reason) => format!(
            "warning: ralph.toml sets `local` as the sandbox, which isolates nothing: {reason}. With a container engine, \
             `ralph init --force` sets `docker`."
        ),
    };
    let docker = match engine {
        Ok(engine) => option(
            "docker",
            None,
            format!(
                "ralph.toml sets `docker` as the sandbox: {engine} answers{}.",
                seal(context).await
            ),
        ),
        Err(reason) => {
            let missing = format!("a container engine: {reason}");
            option(
                "docker",
                Some(missing),
                "ralph.toml sets `docker` as the sandbox.".to_owned(),
            )
        }
    };
    let mut all = vec![
        docker,
        plain(
            "docker-sandbox",
            (!host.has_program("sbx")).then_some("the program `sbx`"),
        ),
        plain(
            "tart",
            (!host.has_program("tart")).then_some("the program `tart`, on macOS"),
        ),
        plain(
            "daytona",
            (!has_key("DAYTONA_API_KEY")).then_some("`DAYTONA_API_KEY`"),
        ),
        // It isolates nothing, so it comes after those that do.
        option("local", None, local),
    ];
    all.sort_by_key(|option| option.missing.is_some());
    all
}

/// How the engine's networks are sealed, as the end of a sentence. Empty if that is not known.
async fn seal(context: &Context) -> String {
    let Ok(given) = context.global.given(Vec::new()) else {
        return String::new();
    };
    let docker = readiness::provider(&context.assembly, &given, SandboxType::Docker).await;
    if docker.ready {
        format!(" ({})", docker.detail)
    } else {
        String::new()
    }
}

/// The option of this name, the answer of a person, or the first. A person is asked until there is such an option.
fn pick<'a>(
    context: &Context,
    what: &str,
    options: &'a [InitOption],
    given: Option<&str>,
) -> Result<&'a InitOption, CliError> {
    let first = options
        .first()
        .ok_or_else(|| CliError::runtime(format!("there is no {what}")))?;
    if let Some(name) = given {
        return find(what, options, name);
    }
    if !context.surroundings().is_attended() {
        return Ok(first);
    }
    for option in options {
        let missing = option
            .missing
            .as_ref()
            .map_or(String::new(), |missing| format!(": needs {missing}"));
        context.ui.say(format_args!("  {}{missing}", option.name));
    }
    loop {
        context.ui.say(format_args!("Which {what}? [{}]", first.name));
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        read.map_err(|error| CliError::runtime(format!("cannot read the answer: {error}")))?;
        let name = answer.trim();
        if name.is_empty() {
            return Ok(first);
        }
        match find(what, options, name) {
            Ok(option) => return Ok(option),
            Err(error) => context.ui.say(error),
        }
    }
}

fn find<'a>(what: &str, options: &'a [InitOption], name: &str) -> Result<&'a InitOption, CliError> {
    let found = options.iter().find(|option| option.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = options.iter().map(|option| option.name).collect();
        CliError::usage(format!(
            "there is no {what} `{name}`; expected one of {}",
            names.join(", ")
        ))
        .with_hint("name one of them; without a name `ralph init` asks, or takes the best")
    })
}
