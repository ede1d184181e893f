//! `ralph run`

use std::path::{Path, PathBuf};

use super::overrides::quiet_configuration;
use super::{CliError, CliExit, CliResult, Context, ErrorTopic, activity, agent_help, flags, image, issue};
use crate::assembly::issue_queue::IssueQueue;
use crate::assembly::{ActiveRun, RalphBuilder};
use crate::config::ConfigOverride;
use crate::gateway::audit::{AuditLog, AuditRecord, AuditTally, TallyEntry};
use crate::github::IssueStatus;
use crate::runner::RunOutcome;
use crate::state::{Intervention, InterventionRequest, RunDir, RunOutcomeKind};
use crate::text::shell_word;

use super::signals::Signals;
use super::terminal::EventFormat;

/// The limits of a run, as the reason of a run that used one up names it.
const LIMITS: [&str; 4] = [
    "max_iterations",
    "max_wall_time_minutes",
    "max_tokens_total",
    "max_cost_usd_estimate",
];

/// Work on a task until it is done, failed, paused or stopped
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The task file
    #[arg(default_value = "ralph_task.md")]
    pub(super) task: PathBuf,
    /// Work on the issue with this number in place of a task file
    #[arg(long, value_name = "N", conflicts_with = "task")]
    pub(super) issue: Option<u64>,
    /// Push the work on the issue and open its pull request, also if `forge.type` is not `github`
    #[arg(long, requires = "issue")]
    pub(super) push: bool,
    #[command(flatten)]
    pub(super) choice: RunChoiceArgs,
    #[command(flatten)]
    pub(super) image: image::RebuildFlag,
    #[command(flatten)]
    pub(super) output: EventOutputArgs,
}

/// What a new run works with.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct RunChoiceArgs {
    /// The provider: docker, docker-sandbox, tart, daytona or local
    #[arg(long = "type", value_name = "PROVIDER")]
    pub(super) provider: Option<String>,
    #[arg(long, value_name = "NAME", help = agent_help("The agent"))]
    pub(super) agent: Option<String>,
    /// The model profile to start with
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Option<String>,
    /// The maximum number of iterations
    #[arg(long, value_name = "N")]
    pub(super) max_iterations: Option<u32>,
    /// Answer from this script in place of a model, to try things out
    #[arg(long, value_name = "FILE")]
    pub(super) script: Option<PathBuf>,
}

impl RunChoiceArgs {
    /// The settings that were given.
    pub(super) fn given(&self) -> Vec<ConfigOverride> {
        let max_iterations = self.max_iterations.map(|count| count.to_string());
        flags([
            ("--type", "sandbox.type", self.provider.clone()),
            ("--agent", "agent.name", self.agent.clone()),
            ("--profile", "default_profile", self.profile.clone()),
            ("--max-iterations", "budget.max_iterations", max_iterations),
        ])
    }
}

/// How events are printed.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct EventOutputArgs {
    /// Print events as JSON on stdout, one object per line
    #[arg(long)]
    json: bool,
    /// Show the output of commands too; `-vv` also shows what agent programs print, as it is
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "json")]
    verbose: u8,
}

impl From<EventOutputArgs> for EventFormat {
    fn from(args: EventOutputArgs) -> Self {
        match args {
            EventOutputArgs { json: true, .. } => Self::Json,
            EventOutputArgs { verbose: 0, .. } => Self::Text,
            EventOutputArgs { verbose: 1, .. } => Self::Verbose,
            EventOutputArgs { .. } => Self::Transcripts,
        }
    }
}

pub(super) async fn run(context: &Context, args: RunArgs) -> CliResult {
    let format = EventFormat::from(args.output);
    let mut given = args.choice.given();
    given.extend(flags([(
        "--push",
        "forge.type",
        args.push.then(|| "github".to_owned()),
    )]));
    let mut builder = context
        .builder(given.clone())?
        .task_file(&args.task)
        .rebuild(args.image.into())
        .sink(format.sink(context.ui));
    if let Some(script) = &args.choice.script {
        builder = builder.script(read_script(context, script)?);
    }
    if let Some(number) = args.issue {
        let config = quiet_configuration(context, given.clone())?;
        // A signal from here on must not leave the claim behind.
        let signals = Signals::watch(&context.surroundings().host()).await?;
        activity::begin(format!("claiming issue {number}"));
        let given = context.global.given(given)?;
        let queue = IssueQueue::open(&context.assembly, &config, given).await?;
        let claimed = queue.claim(number, IssueStatus::Ready).await?;
        return Box::pin(issue::work(context, builder, claimed, signals, format)).await;
    }
    let (run, signals) = start(context, builder).await?;
    drive(context, &run, signals, format).await
}

/// The text of a script that replaces a model.
pub(super) fn read_script(context: &Context, script: &Path) -> Result<String, CliError> {
    let path = context.surroundings().dir().join(script);
    let text = std::fs::read_to_string(&path);
    text.map_err(|error| {
        CliError::usage(format!("cannot read `{}`: {error}", path.display()))
            .with_topic(ErrorTopic::Task)
            .with_hint("`--script` takes a file with the answers of a model; check its path")
    })
}

/// What is shown while a run is prepared.
pub(super) const PREPARING: &str = "preparing the run: task, image, clone";

/// Prepares and starts a run. A signal ends the preparation; those after it are for [`drive`].
pub(super) async fn start(
    context: &Context,
    builder: RalphBuilder,
) -> Result<(ActiveRun, Signals), CliError> {
    let mut signals = Signals::watch(&context.surroundings().host()).await?;
    let run = start_watched(builder, &mut signals).await?;
    Ok((run, signals))
}

/// Like [`start`] with signals that are watched already.
pub(super) async fn start_watched(
    builder: RalphBuilder,
    signals: &mut Signals,
) -> Result<ActiveRun, CliError> {
    activity::begin(PREPARING);
    let start = Box::pin(async { builder.build().await?.start().await });
    let hint = "no iteration had begun; run the same command again";
    signals.or_interrupted(hint, start).await
}

/// Works on a run. Ctrl-C stops it after a clean-up; at the end a summary is shown.
pub(super) async fn drive(
    context: &Context,
    run: &ActiveRun,
    signals: Signals,
    format: EventFormat,
) -> CliResult {
    let ralph = Some(RALPH);
    let outcome = drive_to_end(context, run, signals, ralph).await?;
    let exit = summarize(context, run.dir(), &outcome, format, ralph)?;
    say_how_to_merge(context, run.dir(), &outcome);
    Ok(exit)
}

/// How `ralph` is called for a run of this user.
pub(super) const RALPH: &str = "ralph";

/// Works on a run. Ctrl-C stops it after a clean-up. `ralph` is how ralph is called to continue the run; `None` for a
/// demo that is removed.
pub(super) async fn drive_to_end(
    context: &Context,
    run: &ActiveRun,
    signals: Signals,
    ralph: Option<&str>,
) -> Result<RunOutcome, CliError> {
    tokio::select! {
        outcome = run.drive() => outcome,
        error = interrupted(context, run.dir(), signals, ralph) => {
            run.stop_sandbox().await?;
            Err(error)
        }
    }
}

/// The first Ctrl-C (or SIGTERM, or SIGHUP) asks the run to stop; the second one ends it at once.
async fn interrupted(context: &Context, dir: &RunDir, mut signals: Signals, ralph: Option<&str>) -> CliError {
    let id = &dir.facts().id;
    let resume = ralph.map(|ralph| format!("`{ralph} resume {id}`"));
    signals.next().await;
    context.ui.say(match &resume {
        Some(resume) => format!("Stopping. {resume} continues it; press Ctrl-C again to end at once."),
        None => "Stopping. This demo is removed; press Ctrl-C again to end at once.".to_owned(),
    });
    let surroundings = context.surroundings();
    let stop = InterventionRequest::new(Intervention::Stop, surroundings.user(), surroundings.now());
    if let Err(error) = dir.inbox().leave(&stop) {
        return error.into();
    }
    signals.next().await;
    CliError::paused("ended at once").with_hint(match resume {
        Some(resume) => format!("{resume} continues from the last iteration"),
        None => "`ralph demo` starts another one".to_owned(),
    })
}

/// Shows how a run ended. Returns its exit code. `ralph` is how ralph is called to continue the run; `None` if the caller says
/// what to do next.
pub(super) fn summarize(
    context: &Context,
    dir: &RunDir,
    outcome: &RunOutcome,
    format: EventFormat,
    ralph: Option<&str>,
) -> CliResult {
    let cost = if outcome.used.unpriced_calls > 0 {
        "unknown".to_owned()
    } else {
        outcome.used.cost.to_string()
    };
    context.ui.say(format_args!(
        "\nrun        {}\niterations {}\ntokens     {}\ncost       {cost}\nbranch     {}\nfiles      {}",
        outcome.run,
        outcome.used.iterations,
        outcome.used.tokens.total(),
        outcome.branch,
        dir.path().display()
    ));
    if let Some(compute) = &outcome.compute {
        context.ui.say(format_args!("sandbox    {compute}"));
    }
    show_blocked(context, dir)?;
    if let (Some(location), false) = (&outcome.pull_request, format == EventFormat::Json) {
        context.ui.data(location)?;
    }
    if let Some(hint) = ralph.and_then(|ralph| how_to_continue(outcome, ralph)) {
        context.ui.say(format_args!("hint: {hint}"));
    }
    Ok(match outcome.kind {
        RunOutcomeKind::Done => CliExit::Success,
        RunOutcomeKind::Failed => CliExit::Failure,
        RunOutcomeKind::Paused | RunOutcomeKind::Stopped => CliExit::Paused,
    })
}

/// What to do with a run that is not done.
fn how_to_continue(outcome: &RunOutcome, ralph: &str) -> Option<String> {
    let run = &outcome.run;
    match outcome.kind {
        RunOutcomeKind::Done => None,
        RunOutcomeKind::Failed => {
            let larger = LIMITS.iter().find(|limit| outcome.reason.contains(**limit));
            let larger = larger.map_or(String::new(), |limit| format!(" --set budget.{limit}=N"));
            Some(format!(
                "`{ralph} diff {run}` shows the work; `{ralph} resume {run}{larger}` continues it"
            ))
        }
        RunOutcomeKind::Paused | RunOutcomeKind::Stopped => Some(format!(
            "`{ralph} resume {run}` continues it; `--note TEXT` adds an answer"
        )),
    }
}

/// Says what to do with the work of a run that is done.
pub(super) fn say_how_to_merge(context: &Context, run: &RunDir, outcome: &RunOutcome) {
    if outcome.kind != RunOutcomeKind::Done {
        return;
    }
    let location = outcome.pull_request.as_deref();
    let next = how_to_merge(context, location, &run.facts().repository, &outcome.branch);
    context.ui.next(next);
}

/// How to take the work of a run from the git directory of its repository. Its pull request is at a URL or in a file.
pub(super) fn how_to_merge(
    context: &Context,
    pull_request: Option<&str>,
    repository: &Path,
    branch: &str,
) -> String {
    if let Some(url) = pull_request.filter(|place| place.starts_with("https://")) {
        return format!("review and merge {url}");
    }
    let dir = context.surroundings().dir();
    let holds_it = |dir: &Path| dir.join(".git").canonicalize().is_ok_and(|git| git == repository);
    // A bare repository has no index.
    let is_bare = !repository.join("index").exists();
    let merge = if dir.ancestors().any(holds_it) {
        format!("`git merge {branch}` takes the work")
    } else if let Some(checkout) = repository.parent().filter(|dir| !is_bare && holds_it(dir)) {
        let checkout = shell_word(&checkout.to_string_lossy());
        format!("`cd {checkout} && git merge {branch}` takes the work")
    } else {
        let repository = shell_word(&repository.to_string_lossy());
        format!("`git pull {repository} {branch}` takes the work, in a checkout of that repository")
    };
    match pull_request {
        Some(file) => format!("read {file}; {merge}"),
        None => merge,
    }
}

/// The connections that the policy blocked, most frequent first.
fn show_blocked(context: &Context, dir: &RunDir) -> Result<(), CliError> {
    const SHOWN: usize = 10;
    let tally: AuditTally = AuditLog::read(&dir.network_file())?.iter().collect();
    if tally.is_incomplete {
        context.ui.say(format_args!(
            "warning: {}; with `sandbox.network.on_full_audit = \"close\"` a full audit log closes the sandbox",
            AuditRecord::FULL
        ));
    }
    let blocked: Vec<TallyEntry> = tally.blocked().collect();
    for asked in blocked.iter().take(SHOWN) {
        context.ui.say(asked);
    }
    if blocked.len() > SHOWN {
        let (more, run) = (blocked.len() - SHOWN, &dir.facts().id);
        context.ui.say(format_args!(
            "and {more} more: `ralph network suggest --from {run}` lists them"
        ));
    }
    Ok(())
}
