//! Checks a sandbox as a run would get it, with its agent. The sandbox is removed in any case.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::assembly::broker::BrokeredServices;
use crate::assembly::equipment::Equipment;
use crate::assembly::image::PreparedImage;
use crate::assembly::{image, provider};
use crate::config::{Config, SandboxType};
use crate::event::PreflightResult;
use crate::exec::Discard;
use crate::gateway::meter::Allowance;
use crate::id::RunId;
use crate::runner::AgentTrial;
use crate::sandbox::selftest::{GIT, SelftestCheck, selftest};
use crate::sandbox::{Sandbox, SandboxError, SandboxSpec};
use crate::secret::Redactor;

use crate::text::error_chain;

use super::super::image::RebuildFlag;
use super::sandbox_spec;
use crate::cli::{CliError, CliExit, CliResult, Context, ErrorTopic, activity, temp_dir};

/// The prompt of the agent session. It costs next to nothing.
const PROMPT: &str =
    "This is a test of your setup. Use no tool and change no file. Answer with the one word: ready";
/// Limit for the command that prints the agent's version.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// The most tokens that the session may use, in both directions: one call reserves a whole answer.
const MAX_TOKENS: u64 = 400_000;

/// What to do about checks that failed without a hint of their own.
const LOG_IN: &str = "run `ralph doctor env`, which shows the agent's login or key and its model";
const REMOVE_BY_HAND: &str = "find it with `ralph sandbox ls`, and remove it with `ralph sandbox rm`";

/// A sandbox that is checked, and the results so far.
pub(super) struct Selftest<'a> {
    context: &'a Context,
    config: &'a Config,
    project: &'a Path,
    json: bool,
    equipment: Equipment,
    spec: SandboxSpec,
    sandbox: Option<Arc<dyn Sandbox>>,
    checks: Vec<SelftestCheck>,
    starts_from: Option<StartsFrom>,
    /// Holds the meter's file.
    _dir: tempfile::TempDir,
}

impl<'a> Selftest<'a> {
    /// Connects everything but the image and the sandbox.
    pub(super) async fn open(
        context: &'a Context,
        config: &'a Config,
        project: &'a Path,
        json: bool,
    ) -> Result<Self, CliError> {
        let assembly = &context.assembly;
        provider::create_checked_provider(assembly, config)?
            .check()
            .await?;
        let dir = temp_dir()?;
        let services = BrokeredServices::new(assembly, config).await?;
        let redactor = Redactor::new(config.secrets());
        let usage_file = dir.path().join("usage");
        let equipment = Equipment::open(assembly, config, services, usage_file, redactor, None).await?;
        let brokered = equipment.brokered.as_ref();
        if let Some(metering) = brokered.and_then(|brokered| brokered.metering.as_ref()) {
            metering.meter.allow(Allowance {
                cost: None,
                tokens: Some(MAX_TOKENS),
            });
        }
        Ok(Self {
            spec: sandbox_spec(
                context,
                config,
                project,
                RunId::random(),
                PreparedImage::default(),
            )
            .await?,
            context,
            config,
            project,
            json,
            equipment,
            sandbox: None,
            checks: Vec::new(),
            starts_from: None,
            _dir: dir,
        })
    }

    /// Runs the checks in order, and stops where the following ones cannot succeed.
    pub(super) async fn run(&mut self, rebuild: RebuildFlag) {
        for condition in self.equipment.preconditions.clone() {
            self.record(condition.name(), as_result(condition.check().await));
        }
        activity::begin("preparing the image");
        if self.prepare_image(rebuild).await.is_none() {
            return;
        }
        activity::begin("creating the sandbox");
        let created = self.equipment.provider.create(&self.spec).await;
        let created = created.map_err(|error| CheckFailure::of_sandbox(&error, "check the provider"));
        let Some(sandbox) = self.record("create sandbox", created) else {
            return;
        };
        let sandbox: Arc<dyn Sandbox> = sandbox.into();
        self.sandbox = Some(sandbox.clone());
        activity::begin("checking the sandbox");
        let policy = sandbox.verify().await;
        let policy =
            policy.map_err(|error| CheckFailure::of_sandbox(&error, "run `ralph selftest --escapes`"));
        self.record("network policy", policy);
        let provider = self.config.provider();
        for check in selftest(sandbox.as_ref()).await {
            let needed = if check.name == GIT {
                "git"
            } else {
                "a POSIX shell and coreutils"
            };
            let usual = || how_to_install(needed, provider);
            let failure = check.seen.map(|seen| CheckFailure {
                seen,
                next_step: check.next_step.unwrap_or_else(usual),
            });
            self.record(check.name, failure.map_or(Ok(()), Err));
        }
        let agent = self.config.settings.agent.kind.name;
        let probed = self.probe(sandbox.as_ref()).await;
        let probed =
            probed.map_err(|seen| CheckFailure::new(seen, &how_to_install("the agent's program", provider)));
        if self
            .record(format!("agent {agent} is installed"), probed)
            .is_some()
        {
            activity::begin("holding a session of the agent");
            let held = self.session(sandbox.as_ref()).await;
            let held = held.map_err(|seen| CheckFailure::new(seen, LOG_IN));
            self.record(format!("agent {agent} completes a session"), held);
        }
    }

    /// Builds the image, and makes the template or snapshot. Records each, by its name. `None` if one failed.
    async fn prepare_image(&mut self, rebuild: RebuildFlag) -> Option<()> {
        match self.build(rebuild).await {
            Ok(built) => built.into_iter().for_each(|step| {
                self.record(step, Ok(()));
            }),
            Err(error) => {
                let next_step = error
                    .hint()
                    .unwrap_or("run `ralph image build` to see its output");
                let failure = CheckFailure::new(error.to_string(), next_step);
                return self.record(image::build_step_name(self.project), Err(failure));
            }
        }
        let provider = self.equipment.provider.clone();
        let Some(images) = provider.images() else {
            if let Some(image) = self.spec.image.clone() {
                self.starts_from("image", image);
            }
            return Some(());
        };
        match images.ensure(&self.spec).await {
            Ok(Some(name)) => self.starts_from(images.kind(), name),
            Ok(None) => {}
            Err(error) => {
                let failure = CheckFailure::of_sandbox(&error, "try again with `--rebuild`");
                return self.record(images.kind(), Err(failure));
            }
        }
        Some(())
    }

    fn starts_from(&mut self, kind: &'static str, name: String) {
        self.record(format!("{kind} {name}"), Ok(()));
        self.starts_from = Some(StartsFrom { kind, name });
    }

    /// Removes the sandbox. `None` if that failed.
    pub(super) async fn remove_sandbox(&mut self) -> Option<()> {
        activity::begin("removing the sandbox");
        let removed = self.try_remove().await;
        let removed = removed.map_err(|seen| CheckFailure::new(seen, REMOVE_BY_HAND));
        self.record("sandbox is removed", removed)
    }

    /// Prints the summary, and fails when a check failed. `options` are those of a run with the same provider and agent.
    pub(super) fn conclude(self, options: &str) -> CliResult {
        let failed = self.checks.iter().filter(|check| check.seen.is_some()).count();
        let (all, provider) = (self.checks.len(), self.equipment.provider.name());
        let (passed, agent) = (all - failed, self.config.settings.agent.kind.name);
        let text = format!("{passed} passed, {failed} failed: provider {provider}, agent {agent}");
        let report = SelftestReport {
            provider,
            agent,
            image: self.spec.image,
            starts_from: self.starts_from,
            passed,
            failed,
            checks: self.checks,
        };
        self.context.ui.report(self.json, &report, text)?;
        match failed {
            0 => {
                let works = format!("`ralph run{options}` works in a sandbox like this");
                self.context.ui.next(works);
                Ok(CliExit::Success)
            }
            _ => Err(CliError::runtime(format!(
                "{failed} of {all} checks failed with the `{provider}` provider"
            ))
            .with_topic(ErrorTopic::Sandbox)
            .with_hint("`ralph doctor env` shows what is installed")),
        }
    }

    /// Builds the image and completes the specification with it. Returns the names of the build steps.
    async fn build(&mut self, rebuild: RebuildFlag) -> Result<Vec<&'static str>, CliError> {
        let prepared =
            image::prepare(&self.context.assembly, self.config, self.project, rebuild.into()).await?;
        let build_steps = prepared.build_steps.clone();
        let run = self.spec.run.clone();
        let spec = sandbox_spec(self.context, self.config, self.project, run, prepared).await?;
        self.spec = self
            .equipment
            .connect_spec(&self.context.assembly, self.config, spec)?;
        Ok(build_steps)
    }

    /// Runs the agent's program once.
    async fn probe(&self, sandbox: &dyn Sandbox) -> Result<(), String> {
        let profile = &self.config.settings.default_profile;
        let agent = self.equipment.agents.for_profile(profile);
        let Some(probe) = agent.check_command() else {
            return Ok(());
        };
        let exit = sandbox.exec(&probe.timeout(PROBE_TIMEOUT), &mut Discard).await;
        let exit = exit.map_err(|error| error_chain(&error))?;
        if exit.success() {
            return Ok(());
        }
        Err(format!("{}: {}", exit.status, exit.stderr.text().trim()))
    }

    /// Holds one agent session.
    async fn session(&self, sandbox: &dyn Sandbox) -> Result<(), String> {
        let name = &self.config.settings.default_profile;
        let agent = self.equipment.agents.for_profile(name);
        let profile = self.config.profiles.get(name);
        let round = AgentTrial {
            sandbox,
            agent: agent.as_ref(),
            model: self.equipment.model.as_ref(),
            profile: profile.ok_or_else(|| format!("there is no model profile `{name}`"))?,
            max_cost: self.config.settings.budget.max_cost,
        };
        let prompt = if self.config.settings.agent.kind.is_built_in {
            format!("{PROMPT}\n\n{}", agent.answer_format())
        } else {
            PROMPT.to_owned()
        };
        let held = round.run(&prompt).await;
        held.map(drop).map_err(|error| error_chain(&error))
    }

    async fn try_remove(&mut self) -> Result<(), String> {
        let failed = |error: SandboxError| error_chain(&error);
        match self.sandbox.take() {
            Some(sandbox) => sandbox.close().await.map_err(failed)?,
            // An interrupted creation may have left one.
            None => {
                if let Some(sandbox) = self.equipment.provider.reopen(&self.spec).await.map_err(failed)? {
                    sandbox.close().await.map_err(failed)?;
                }
            }
        }
        let runs = self.context.surroundings().runs();
        let runs = runs.map_err(|error| error.to_string())?;
        // `local` keeps its sandboxes in the directories of runs.
        let _ = std::fs::remove_dir(runs.dir().join(self.spec.run.as_str()));
        let listed = self.equipment.provider.list().await.map_err(failed)?;
        let mut listed = listed.iter();
        match listed.find(|listed| listed.run.as_ref() == Some(&self.spec.run)) {
            None => Ok(()),
            Some(left) => Err(format!("{} still exists", left.id)),
        }
    }

    /// Records a result and, without `--json`, prints it at once. Returns what a check that passed found.
    fn record<T>(&mut self, name: impl Into<String>, result: Result<T, CheckFailure>) -> Option<T> {
        let name = name.into();
        let (found, failure) = match result {
            Ok(found) => (Some(found), None),
            Err(failure) => (None, Some(failure)),
        };
        let (seen, next_step) = failure.map(|failure| (failure.seen, failure.next_step)).unzip();
        let check = SelftestCheck {
            name,
            seen,
            next_step,
        };
        if !self.json {
            // The sandbox must be removed even when stdout is closed.
            let _ = self.context.ui.data(match (&check.seen, &check.next_step) {
                (Some(seen), Some(next_step)) => format!("FAIL  {}: {seen} (next: {next_step})", check.name),
                _ => format!("PASS  {}", check.name),
            });
        }
        self.checks.push(check);
        found
    }
}

/// Why a check failed, and what to do about it.
struct CheckFailure {
    seen: String,
    next_step: String,
}

impl CheckFailure {
    fn new(seen: String, next_step: &str) -> Self {
        let next_step = next_step.to_owned();
        Self { seen, next_step }
    }

    /// A failed operation of a sandbox, with its own hint, or else this one.
    fn of_sandbox(error: &SandboxError, usual: &str) -> Self {
        Self::new(error_chain(error), error.hint().unwrap_or(usual))
    }
}

/// How to get a program into the sandboxes of a provider.
fn how_to_install(what: &str, provider: SandboxType) -> String {
    match provider {
        SandboxType::Local => format!("install {what} on this host, in a directory of `PATH`"),
        SandboxType::Tart => format!(
            "install {what} with the script `.agent-loop/dependencies`, or name an image that has it in `sandbox.image`"
        ),
        SandboxType::Docker | SandboxType::DockerSandbox | SandboxType::Daytona => format!(
            "unset `sandbox.image`, so that ralph builds an image with {what} and with what `.agent-loop/` adds, or install \
             it in yours; `--rebuild` builds the image again"
        ),
    }
}

fn as_result(found: PreflightResult) -> Result<(), CheckFailure> {
    match found {
        PreflightResult::Ready { .. } => Ok(()),
        // The next steps are those of a run that was created.
        PreflightResult::NotReady { why, next_step } => Err(CheckFailure::new(
            why,
            &next_step.replace("ralph resume", "ralph selftest"),
        )),
    }
}

/// The image, template or snapshot that a sandbox was created from.
#[derive(Serialize, JsonSchema)]
struct StartsFrom {
    kind: &'static str,
    name: String,
}

/// The output of `--json`.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct SelftestReport {
    provider: &'static str,
    agent: &'static str,
    image: Option<String>,
    /// The image, template or snapshot that the sandbox was created from.
    starts_from: Option<StartsFrom>,
    passed: usize,
    failed: usize,
    checks: Vec<SelftestCheck>,
}
