//! A sandbox as a run would get it, tried out with its agent, and removed whatever came of it.

use crate::text::error_chain;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::agent::Agents;
use crate::assembly::broker::{Brokered, Services};
use crate::assembly::{agents, image, parts, preflight, provider, spec};
use crate::config::{AgentName, Config};
use crate::event::PreflightResult;
use crate::exec::Discard;
use crate::gateway::meter::Allowance;
use crate::model::Model;
use crate::runner::{Precondition, Round};
use crate::sandbox::selftest::{SelftestCheck, selftest};
use crate::sandbox::{Provider, Sandbox, SandboxError, SandboxSpec};
use crate::secret::Redactor;

use super::super::Context;
use super::super::error::{CliError, Exit};
use super::super::image::RebuildFlag;
use super::{Form, sandbox_spec};

/// What the agent is asked. It costs next to nothing.
const PROMPT: &str =
    "This is a test of your setup. Use no tool and change no file. Answer with the one word: ready";
/// How long an agent may take to tell its version.
const LONGEST: Duration = Duration::from_secs(60);
/// What a round may use at the most, both directions: one call reserves a whole answer.
const MOST_TOKENS: u64 = 400_000;

/// A sandbox that is tried out, and what was seen so far.
pub(super) struct Trial<'a> {
    context: &'a Context,
    config: &'a Config,
    project: &'a Path,
    form: Form,
    provider: Arc<dyn Provider>,
    parts: Parts,
    spec: SandboxSpec,
    sandbox: Option<Arc<dyn Sandbox>>,
    checks: Vec<SelftestCheck>,
}

/// What a round needs.
struct Parts {
    agents: Agents,
    model: Arc<dyn Model>,
    preconditions: Vec<Arc<dyn Precondition>>,
    brokered: Option<Brokered>,
    /// Holds what the meter writes down.
    _dir: tempfile::TempDir,
}

impl Parts {
    async fn open(context: &Context, config: &Config) -> Result<Self, CliError> {
        let dir = tempfile::tempdir()
            .map_err(|error| CliError::runtime(format!("no temporary directory: {error}")))?;
        let services = Services::of(&context.assembly, config).await?;
        let redactor = Redactor::new(config.secrets());
        let brokered = services
            .open(config, dir.path().join("spending"), &redactor)
            .await?;
        if let Some(metering) = brokered.as_ref().and_then(|brokered| brokered.metering.as_ref()) {
            metering.meter.allow(Allowance {
                cost: None,
                tokens: Some(MOST_TOKENS),
            });
        }
        let access = |profile: &str| brokered.as_ref()?.access(profile);
        Ok(Self {
            agents: agents::agents(config, access)?,
            model: parts::model(config, None)?,
            preconditions: preflight::preconditions(&context.assembly, config, brokered.as_ref()).await?,
            brokered,
            _dir: dir,
        })
    }
}

impl<'a> Trial<'a> {
    /// Everything but the image and the sandbox.
    pub(super) async fn open(
        context: &'a Context,
        config: &'a Config,
        project: &'a Path,
        form: Form,
    ) -> Result<Self, CliError> {
        provider::provider(&context.assembly, config)?.check().await?;
        let parts = Parts::open(context, config).await?;
        let provider = provider::connected_with(&context.assembly, config, parts.brokered.as_ref())?;
        let spec = sandbox_spec(context, config, project, None).await?;
        Ok(Self {
            context,
            config,
            project,
            form,
            provider,
            parts,
            spec,
            sandbox: None,
            checks: Vec::new(),
        })
    }

    /// Tries everything in its order, as far as nothing that it needs failed.
    pub(super) async fn carry_out(&mut self, rebuild: RebuildFlag) {
        for condition in self.parts.preconditions.clone() {
            self.tell(condition.name(), as_seen(condition.look().await));
        }
        if !self.build(rebuild).await {
            return;
        }
        let Some(sandbox) = self.create().await else {
            return;
        };
        let policy = sandbox.verify().await;
        self.tell("network policy", policy.map_err(|error| error_chain(&error)));
        for SelftestCheck { name, seen } in selftest(sandbox.as_ref()).await {
            self.tell(name, seen.map_or(Ok(()), Err));
        }
        let agent = self.config.settings.agent.name.name();
        let found = self.probe(sandbox.as_ref()).await;
        let is_there = found.is_ok();
        self.tell(format!("agent {agent} is there"), found);
        if is_there {
            let held = self.round(sandbox.as_ref()).await;
            self.tell(format!("agent {agent} does one round"), held);
        }
    }

    /// Removes whatever was made.
    pub(super) async fn clean_up(&mut self) {
        let removed = self.removed().await;
        self.tell("nothing is left", removed);
    }

    /// Tells how it went, all in all.
    pub(super) fn conclude(self) -> Result<Exit, CliError> {
        let failed = self.checks.iter().filter(|check| check.seen.is_some()).count();
        let (all, provider) = (self.checks.len(), self.provider.name());
        match self.form {
            Form::Json => self.context.ui.json(&Report {
                provider,
                agent: self.config.settings.agent.name.name(),
                image: self.spec.image,
                passed: all - failed,
                failed,
                checks: self.checks,
            })?,
            Form::Lines => self.context.ui.data(format_args!(
                "{} passed, {failed} failed: provider {provider}, agent {}",
                all - failed,
                self.config.settings.agent.name.name()
            ))?,
        }
        match failed {
            0 => Ok(Exit::Success),
            _ => Err(CliError::runtime(format!(
                "{failed} of {all} checks failed with the `{provider}` provider"
            ))
            .hint("`ralph doctor env` says what is installed here")),
        }
    }

    async fn build(&mut self, rebuild: RebuildFlag) -> bool {
        match self.built(rebuild).await {
            Ok(built) => {
                for what in built {
                    self.tell(what, Ok(()));
                }
                true
            }
            Err(error) => {
                self.tell(image::name_of_build(self.project), Err(error.message));
                false
            }
        }
    }

    /// Sees to it that the image is there, with all that it tells of itself; says what was built.
    async fn built(&mut self, rebuild: RebuildFlag) -> Result<Vec<&'static str>, CliError> {
        let prepared =
            image::prepare(&self.context.assembly, self.config, self.project, rebuild.into()).await?;
        let made = sandbox_spec(self.context, self.config, self.project, prepared.image).await?;
        let spec = SandboxSpec {
            run: self.spec.run.clone(),
            purpose: self.spec.purpose.clone(),
            ..made
        };
        let spec = spec::with_broker(spec, self.parts.brokered.as_ref())?;
        let asked = (self.provider.as_ref(), spec.network);
        self.spec = SandboxSpec {
            network: provider::enforceable(&self.context.assembly, self.config, asked)?,
            ..spec
        };
        Ok(prepared.built)
    }

    async fn create(&mut self) -> Option<Arc<dyn Sandbox>> {
        match self.provider.create(&self.spec).await {
            Ok(sandbox) => {
                self.tell("create sandbox", Ok(()));
                let sandbox: Arc<dyn Sandbox> = sandbox.into();
                self.sandbox = Some(sandbox.clone());
                Some(sandbox)
            }
            Err(error) => {
                self.tell("create sandbox", Err(error_chain(&error)));
                None
            }
        }
    }

    /// Whether the agent's program runs.
    async fn probe(&self, sandbox: &dyn Sandbox) -> Result<(), String> {
        let agent = self
            .parts
            .agents
            .for_profile(&self.config.settings.default_profile);
        let Some(probe) = agent.check_command() else {
            return Ok(());
        };
        let exit = sandbox.exec(&probe.timeout(LONGEST), &mut Discard).await;
        let exit = exit.map_err(|error| error_chain(&error))?;
        if exit.success() {
            return Ok(());
        }
        Err(format!("{}: {}", exit.status, exit.stderr.text().trim()))
    }

    /// Whether one session ends well.
    async fn round(&self, sandbox: &dyn Sandbox) -> Result<(), String> {
        let own = &self.config.settings.default_profile;
        let agent = self.parts.agents.for_profile(own);
        let profile = self.config.profiles.get(own);
        let round = Round {
            sandbox,
            agent: agent.as_ref(),
            model: self.parts.model.as_ref(),
            profile: profile.ok_or_else(|| format!("there is no model profile `{own}`"))?,
            cost: self.config.settings.budget.max_cost,
        };
        let prompt = match self.config.settings.agent.name {
            AgentName::Actions => format!("{PROMPT}\n\n{}", agent.answer_format()),
            AgentName::Claude | AgentName::Codex | AgentName::Cursor | AgentName::Custom => PROMPT.to_owned(),
        };
        round
            .hold(&prompt)
            .await
            .map(drop)
            .map_err(|error| error_chain(&error))
    }

    async fn removed(&mut self) -> Result<(), String> {
        let told = |error: SandboxError| error_chain(&error);
        match self.sandbox.take() {
            Some(sandbox) => sandbox.close().await.map_err(told)?,
            // One may be there whose making was interrupted.
            None => {
                if let Some(sandbox) = self.provider.reopen(&self.spec).await.map_err(told)? {
                    sandbox.close().await.map_err(told)?;
                }
            }
        }
        let runs = self
            .context
            .surroundings()
            .runs()
            .map_err(|error| error.to_string())?;
        // `local` keeps its sandboxes where runs are; this was none.
        let _ = std::fs::remove_dir(runs.dir().join(self.spec.run.as_str()));
        let listed = self.provider.list().await.map_err(told)?;
        match listed
            .iter()
            .find(|listed| listed.run.as_ref() == Some(&self.spec.run))
        {
            None => Ok(()),
            Some(left) => Err(format!("{} is still there", left.id)),
        }
    }

    /// Keeps what was seen, and shows it to a person at once.
    fn tell(&mut self, name: impl Into<String>, seen: Result<(), String>) {
        let check = SelftestCheck {
            name: name.into(),
            seen: seen.err(),
        };
        if self.form == Form::Lines {
            // A reader that went away is no reason to leave something behind.
            let _ = self.context.ui.data(match &check.seen {
                None => format!("PASS  {}", check.name),
                Some(seen) => format!("FAIL  {}: {seen}", check.name),
            });
        }
        self.checks.push(check);
    }
}

fn as_seen(found: PreflightResult) -> Result<(), String> {
    match found {
        PreflightResult::Ready { .. } => Ok(()),
        PreflightResult::NotReady { why, next_step } => Err(format!("{why} (next: {next_step})")),
    }
}

/// What was found, for programs.
#[derive(Serialize)]
struct Report {
    provider: &'static str,
    agent: &'static str,
    image: Option<String>,
    passed: usize,
    failed: usize,
    checks: Vec<SelftestCheck>,
}
