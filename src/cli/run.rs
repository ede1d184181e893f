//! `ralph run`

use std::path::{Path, PathBuf};

use crate::assembly::configuration::{TaskFile, project_dir};
use crate::assembly::parts::{self, Assembled};
use crate::assembly::spec::Making;
use crate::assembly::{self, image::prepare};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Override};
use crate::gateway::audit::{Asked, AuditLog, Tally};
use crate::runner::{self, NewRun, RunOutcome, RunParts, RunSettings};
use crate::sandbox::SandboxSpec;
use crate::scm::Repository;
use crate::state::{Intervention, RunDir, RunOutcomeKind};
use crate::task::Task;

use super::error::{CliError, Exit, io};
use super::overrides::{configuration, configuration_quietly, flags};
use super::signals::Signals;
use super::terminal::Show;
use super::{Context, image, lint};

/// Work on a task until it is done, failed, paused or stopped
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The task file
    #[arg(default_value = "ralph_task.md")]
    pub(super) task: PathBuf,
    /// The provider: docker, docker-sandbox, tart, daytona or local
    #[arg(long = "type", value_name = "PROVIDER")]
    pub(super) provider: Option<String>,
    /// The agent: claude, codex, cursor, actions or custom
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
    /// The model profile to begin with
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Option<String>,
    /// The most iterations
    #[arg(long, value_name = "N")]
    pub(super) max_iterations: Option<u32>,
    /// Answer from this script in place of a model (for trying things out)
    #[arg(long, value_name = "FILE")]
    pub(super) script: Option<PathBuf>,
    #[command(flatten)]
    pub(super) image: image::RebuildFlag,
    #[command(flatten)]
    pub(super) shown: Shown,
}

/// How much is shown.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct Shown {
    /// Print events as JSON on stdout, one object a line
    #[arg(long)]
    pub(super) json: bool,
    /// Show the output of commands too
    #[arg(short, long, conflicts_with = "json")]
    pub(super) verbose: bool,
}

impl From<Shown> for Show {
    fn from(shown: Shown) -> Self {
        match shown {
            Shown { json: true, .. } => Self::Json,
            Shown { verbose: true, .. } => Self::Everything,
            Shown { .. } => Self::Lines,
        }
    }
}

impl Args {
    fn given(&self) -> Vec<Override> {
        flags([
            ("--type", "sandbox.type", self.provider.clone()),
            ("--agent", "agent.name", self.agent.clone()),
            ("--profile", "default_profile", self.profile.clone()),
            (
                "--max-iterations",
                "budget.max_iterations",
                self.max_iterations.map(|count| count.to_string()),
            ),
        ])
    }
}

pub(super) async fn run(context: &Context, args: Args) -> Result<Exit, CliError> {
    let path = context.surroundings().cwd.join(&args.task);
    let file = TaskFile {
        text: lint::read(&path)?.unwrap_or_default(),
        project: project_dir(path.parent().unwrap_or(&context.surroundings().cwd)),
        path,
    };
    lint_or_refuse(context, &args, &file)?;
    let given = args.given();
    let config = configuration(context, Some(&file), given.clone())?;
    let script = args
        .script
        .as_ref()
        .map(|script| read_script(&context.surroundings().cwd.join(script)))
        .transpose()?;
    let repo = repository(context, &file).await?;
    let overrides = context.global.given(given)?.overrides;
    let project = file.project.clone();
    let new = NewRun {
        created: SystemClock.now(),
        project: Some(file.project),
        task: file.text,
        branch_prefix: config.settings.git.branch_prefix.clone(),
        overrides: overrides
            .into_iter()
            .map(|given| (given.key, given.value))
            .collect(),
        script,
    };
    // Everything that can be refused is refused before the run exists.
    parts::check(&context.assembly, &config, new.script.as_deref()).await?;
    let image = prepare(&context.assembly, &config, &project, args.image.into())
        .await?
        .image;
    let redactor = crate::secret::Redactor::new(config.secrets());
    let dir = runner::create(&context.surroundings().runs()?, &repo, &redactor, new).await?;
    let start = Start {
        config: &config,
        image,
        show: args.shown.into(),
    };
    drive(context, &dir, start).await
}

/// What a run is taken up with.
pub(super) struct Start<'a> {
    pub(super) config: &'a Config,
    /// What its sandbox starts from.
    pub(super) image: Option<String>,
    pub(super) show: Show,
}

/// Works on a run, with Ctrl-C wired to a clean stop, and tells how it ended.
pub(super) async fn drive(context: &Context, dir: &RunDir, start: Start<'_>) -> Result<Exit, CliError> {
    let Start { config, image, show } = start;
    let assembled = parts::parts(&context.assembly, config, dir, show.sink(context.ui)).await?;
    let Assembled { parts, brokered } = &assembled;
    let settings = RunSettings {
        agent_env: brokered
            .as_ref()
            .map(|brokered| brokered.agent_env.clone())
            .unwrap_or_default(),
        ..assembly::settings(config)?
    };
    let making = Making {
        config,
        run: dir,
        image,
        provider: parts.provider.as_ref(),
        brokered: brokered.as_ref(),
    };
    let spec = making.spec(&context.assembly).await?;
    let outcome = tokio::select! {
        outcome = runner::drive(parts, &settings, &spec, dir) => outcome?,
        error = interrupted(context, dir) => {
            end_sandbox(parts, &spec).await?;
            return Err(error);
        }
    };
    conclude(context, dir, &outcome, show)
}

/// The first Ctrl-C (or SIGTERM) asks the run to stop; the second gives up on asking.
async fn interrupted(context: &Context, dir: &RunDir) -> CliError {
    let id = &dir.facts().id;
    let mut signals = match Signals::watch() {
        Ok(signals) => signals,
        Err(error) => return error,
    };
    signals.next().await;
    context.ui.say(format_args!(
        "Stopping. `ralph resume {id}` goes on; Ctrl-C again ends at once."
    ));
    if let Err(error) = dir.inbox().leave(&Intervention::Stop, SystemClock.now()) {
        return error.into();
    }
    signals.next().await;
    CliError {
        exit: Exit::Paused,
        message: "ended at once".to_owned(),
        hint: None,
    }
    .hint(format!("`ralph resume {id}` goes on from the last iteration"))
}

/// Ends what the agent left running in the background; its commands ended with the loop.
async fn end_sandbox(parts: &RunParts, spec: &SandboxSpec) -> Result<(), CliError> {
    if let Some(sandbox) = parts.provider.reopen(spec).await? {
        sandbox.stop().await?;
    }
    Ok(())
}

fn conclude(context: &Context, dir: &RunDir, outcome: &RunOutcome, show: Show) -> Result<Exit, CliError> {
    let cost = if outcome.unpriced_calls > 0 {
        "unknown".to_owned()
    } else {
        outcome.cost.to_string()
    };
    context.ui.say(format_args!(
        "\nrun        {}\niterations {}\ntokens     {}\ncost       {cost}\nbranch     {}\nfiles      {}",
        outcome.run,
        outcome.iterations,
        outcome.tokens.total(),
        outcome.branch,
        dir.path().display()
    ));
    if let Some(compute) = &outcome.compute {
        context.ui.say(format_args!("sandbox    {compute}"));
    }
    tell_blocked(context, dir)?;
    if let (Some(location), false) = (&outcome.pull_request, show == Show::Json) {
        context.ui.data(location)?;
    }
    match outcome.kind {
        RunOutcomeKind::Done => Ok(Exit::Success),
        RunOutcomeKind::Failed => {
            context.ui.say(format_args!(
                "hint: `ralph diff {0}` shows the work; `ralph resume {0}` goes on with a larger budget",
                outcome.run
            ));
            Ok(Exit::Failure)
        }
        RunOutcomeKind::Paused | RunOutcomeKind::Stopped => {
            context
                .ui
                .say(format_args!("hint: `ralph resume {}` goes on", outcome.run));
            Ok(Exit::Paused)
        }
    }
}

/// What the sandbox asked for and did not get, most frequent first.
fn tell_blocked(context: &Context, dir: &RunDir) -> Result<(), CliError> {
    const MOST: usize = 10;
    let tally: Tally = AuditLog::read(&dir.network_file())?.iter().collect();
    let blocked: Vec<Asked> = tally.blocked().collect();
    for asked in blocked.iter().take(MOST) {
        context.ui.say(asked);
    }
    if blocked.len() > MOST {
        let (more, run) = (blocked.len() - MOST, &dir.facts().id);
        context.ui.say(format_args!(
            "and {more} more: `ralph network suggest --from {run}` lists them"
        ));
    }
    Ok(())
}

fn lint_or_refuse(context: &Context, args: &Args, file: &TaskFile) -> Result<(), CliError> {
    // The minimum of checkboxes is configuration that the task cannot change, so it is read without the task.
    let config = configuration_quietly(context, file.project.clone())?;
    let min_checkboxes = config.settings.task.min_checkboxes.get() as usize;
    let text = file.path.exists().then_some(file.text.as_str());
    let findings = crate::task::lint(text, min_checkboxes);
    if findings.is_empty() {
        return Ok(());
    }
    for finding in &findings {
        context.ui.say(lint::render(&args.task, finding));
    }
    Err(lint::refusal(&args.task, findings.len()))
}

fn read_script(path: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(path)
        .map_err(io("read", path))
        .map_err(|error| CliError {
            exit: Exit::Usage,
            ..error
        })
}

/// The repository of a task: the one it names, else the one around the task file.
async fn repository(context: &Context, file: &TaskFile) -> Result<Repository, CliError> {
    let task = Task::parse(&file.text)?;
    let host = context.surroundings().host();
    match &task.frontmatter.repo_url {
        Some(url) => {
            Ok(Repository::mirror(host, url, &context.surroundings().cache_dir()?.join("mirrors")).await?)
        }
        None => Ok(Repository::open(host, file.path.parent().unwrap_or(Path::new("."))).await?),
    }
}
