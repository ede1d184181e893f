//! A run that is ready to start, and one that is being worked on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::config::{Config, OnFullAudit};
use crate::event::EventSink;
use crate::evidence::SigningKey;
use crate::gateway::audit::{AuditLimits, AuditLog};
use crate::runner::{self, NewRun, RunOutcome, RunParts, RunSettings};
use crate::sandbox::{SandboxError, SandboxErrorKind, SandboxSpec};
use crate::scm::{Repository, StateRemote};
use crate::secret::Redactor;
use crate::state::{RunDir, StateError};
use crate::text::error_chain;

use super::broker::{BrokeredServices, RunBroker};
use super::equipment::Equipment;
use super::image::PreparedImage;
use super::issue::ClaimedIssue;
use super::reporting::RunReporting;
use super::spec::{SandboxUse, sandbox_spec};
use super::{AssemblyContext, AssemblyError, RalphBuilder, forge, settings};

/// How long a sandbox waits to be removed while its engine restarts, and how often that is tried.
const ENGINE_RESTART: Duration = Duration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// A task with everything that is needed to work on it: configuration, credentials, image. Nothing runs yet.
///
/// ```no_run
/// use ralph::{Claude, Docker, Ralph};
///
/// # async fn example() -> Result<(), ralph::AssemblyError> {
/// let outcome = Ralph::builder()
///     .repository(".")
///     .task_file("ralph_task.md")
///     .sandbox(Docker::new().allow(["crates.io"]))
///     .agent(Claude::new())
///     .build()
///     .await?
///     .run()
///     .await?;
/// println!("{:?}", outcome.pull_request);
/// # Ok(())
/// # }
/// ```
pub struct Ralph {
    pub(super) context: AssemblyContext,
    pub(super) config: Config,
    pub(super) services: BrokeredServices,
    pub(super) target: RunTarget,
    /// The issue that the run works on.
    pub(super) issue: Option<Arc<ClaimedIssue>>,
    pub(super) image: PreparedImage,
    /// Where checkpoints are pushed to.
    pub(super) state_remote: Option<StateRemote>,
    /// The epoch of the claim in the queue.
    pub(super) epoch: Option<u64>,
    pub(super) sink: Arc<dyn EventSink>,
}

/// What is worked on.
pub(super) enum RunTarget {
    New { repository: Repository, run: NewRun },
    Existing(RunDir),
}

impl RunTarget {
    /// The script that replaces the model.
    pub(super) fn script(&self) -> Option<&str> {
        match self {
            Self::New { run, .. } => run.script.as_deref(),
            Self::Existing(dir) => dir.facts().script.as_deref(),
        }
    }
}

impl Ralph {
    /// Starts with the defaults of the command line.
    pub fn builder() -> RalphBuilder {
        RalphBuilder::default()
    }

    /// The configuration of the run.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Creates the run and works on it until it is done, failed, paused or stopped.
    ///
    /// Dropping the future is like a crash: at most one iteration is lost, and the run can be resumed.
    pub async fn run(self) -> Result<RunOutcome, AssemblyError> {
        let run = Box::pin(self.start()).await?;
        Box::pin(run.drive()).await
    }

    /// Creates the run and connects its parts. [`ActiveRun::drive`] works on it.
    pub async fn start(self) -> Result<ActiveRun, AssemblyError> {
        let surroundings = self.context.surroundings.clone();
        let redactor = Redactor::new(self.config.secrets());
        let dir = match &self.target {
            RunTarget::Existing(dir) => dir.clone(),
            RunTarget::New { repository, run } => {
                runner::create(&surroundings.runs()?, repository, &redactor, run.clone()).await?
            }
        };
        let sink = self.sink.clone();
        let reporting = RunReporting::open(&self.context, &self.config, &dir, sink, &redactor).map(Arc::new);
        let (error, reporting) = match reporting {
            Err(error) => (error, None),
            Ok(reporting) => {
                let connecting = self.connect(dir.clone(), redactor.clone(), reporting.clone());
                match Box::pin(connecting).await {
                    Ok(run) => return Ok(run),
                    Err(error) => (error, Some(reporting)),
                }
            }
        };
        let reason = redactor.redact(&error.to_string());
        match dir.record_broken(&surroundings.owner(), surroundings.now(), reason) {
            Err(error) => tracing::warn!(error = %error_chain(&error), "cannot record that the run broke"),
            Ok(()) => {
                if let Some(reporting) = reporting {
                    reporting.wake();
                    reporting.settle().await;
                }
            }
        }
        let hint = format!("`ralph resume {}` tries again", dir.facts().id);
        Err(match error.hint() {
            Some(_) => error,
            None => error.with_hint(hint),
        })
    }

    /// Connects the parts of a run.
    async fn connect(
        self,
        dir: RunDir,
        redactor: Redactor,
        reporting: Arc<RunReporting>,
    ) -> Result<ActiveRun, AssemblyError> {
        let (context, config) = (&self.context, &self.config);
        let script = dir.facts().script.as_deref();
        let usage_file = dir.spending_file();
        let equipment = Equipment::open(context, config, self.services, usage_file, redactor, script).await?;
        equipment.report_limits(context, config);
        let used = SandboxUse::for_run(&dir, config, self.image)?;
        let mut spec = sandbox_spec(context, config, used).await?;
        let limits = AuditLimits {
            closes_sandbox: config.settings.sandbox.network.on_full_audit == OnFullAudit::Close,
            ..AuditLimits::default()
        };
        let audit = AuditLog::open_with(&dir.network_file(), context.surroundings.clock(), limits)?;
        spec.egress.audit = Arc::new(audit);
        let spec = equipment.connect_spec(context, config, spec)?;
        let brokered = equipment.brokered;
        let settings = RunSettings {
            agent_env: brokered
                .as_ref()
                .map(|broker| broker.agent_env.clone())
                .unwrap_or_default(),
            setup_cache: Some(context.surroundings.cache_dir()?.join("setup")),
            state_remote: self.state_remote.map(|remote| StateRemote {
                host: remote.host.with_name(dir.path()),
                url: remote.url,
            }),
            ..settings(config, script)?
        };
        let forge = forge::create(context, config, &dir, &equipment.redactor, self.issue).await?;
        // The name lets a later process find what this one started, after a crash.
        let host = context.surroundings.host().with_name(dir.path());
        let evidence_key = SigningKey::load_or_create(&context.surroundings.evidence_key()?)?;
        equipment.redactor.learn([evidence_key.private()]);
        let parts = RunParts {
            provider: equipment.provider,
            agents: equipment.agents,
            model: equipment.model,
            forge,
            sink: reporting.sink(),
            clock: context.surroundings.clock(),
            host,
            redactor: equipment.redactor,
            owner: context.surroundings.owner().with_epoch(self.epoch),
            metering: brokered.as_ref().and_then(|broker| broker.metering.clone()),
            evidence_key,
            preconditions: equipment.preconditions,
        };
        Ok(ActiveRun {
            dir,
            parts,
            settings,
            spec,
            reporting,
            _brokered: brokered,
        })
    }
}

/// A run with its directory and its parts.
pub struct ActiveRun {
    dir: RunDir,
    parts: RunParts,
    settings: RunSettings,
    spec: SandboxSpec,
    reporting: Arc<RunReporting>,
    /// Serves the run's agents for as long as it lives.
    _brokered: Option<RunBroker>,
}

impl ActiveRun {
    /// The run's directory on the host.
    #[must_use]
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// Works on the run until it is done, failed, paused or stopped.
    pub async fn drive(&self) -> Result<RunOutcome, AssemblyError> {
        let outcome = runner::drive(&self.parts, &self.settings, &self.spec, &self.dir).await;
        self.reporting.settle().await;
        outcome.map_err(|error| AssemblyError::from(error).of_run(&self.dir.facts().id))
    }

    /// Asks the doctor why the run is stuck, and returns the diagnosis. Nothing else may be driving the run.
    pub async fn diagnose(&self) -> Result<String, AssemblyError> {
        let diagnosis = runner::diagnose(&self.parts, &self.settings, &self.spec, &self.dir).await;
        self.reporting.settle().await;
        Ok(diagnosis?)
    }

    /// Stops the sandbox after a [`ActiveRun::drive`] that was dropped, and with it what the agent left running. Does nothing
    /// if another process works on the run by now: then the sandbox is that of the other one.
    pub async fn stop_sandbox(&self) -> Result<(), AssemblyError> {
        self.end_sandbox(SandboxEnd::Stop).await
    }

    /// Like [`ActiveRun::stop_sandbox`], but removes the sandbox: for a run that goes on on another host. Nothing else would remove
    /// it while this process lives, so an engine that restarts is waited for.
    pub(crate) async fn remove_sandbox(&self) -> Result<(), AssemblyError> {
        self.end_sandbox(SandboxEnd::Remove).await
    }

    async fn end_sandbox(&self, end: SandboxEnd) -> Result<(), AssemblyError> {
        // No other process opens the sandbox before this one is through with it.
        let _lock = match self.dir.lock(&self.parts.owner) {
            Err(StateError::Owned { .. }) => return Ok(()),
            lock => lock?,
        };
        let give_up = Instant::now() + ENGINE_RESTART;
        loop {
            let may_retry = matches!(end, SandboxEnd::Remove) && Instant::now() < give_up;
            match self.end_sandbox_once(end).await {
                Err(error) if may_retry && error.kind() == SandboxErrorKind::Unreachable => {
                    sleep(RETRY_PAUSE).await;
                }
                ended => return Ok(ended?),
            }
        }
    }

    async fn end_sandbox_once(&self, end: SandboxEnd) -> Result<(), SandboxError> {
        let Some(sandbox) = self.parts.provider.reopen(&self.spec).await? else {
            return Ok(());
        };
        match end {
            SandboxEnd::Stop => sandbox.stop().await,
            SandboxEnd::Remove => sandbox.close().await,
        }
    }
}

/// What becomes of the sandbox of a run that is no longer driven.
#[derive(Clone, Copy, Debug)]
enum SandboxEnd {
    Stop,
    Remove,
}
