//! `ralph submit`

use std::path::PathBuf;

use jiff::Timestamp;

use crate::assembly::store;
use crate::service::{SubmitRequest, SubmittedRun, submit};
use crate::store::{Label, Store, StoreError};

use super::overrides::quiet_configuration;
use super::run::{RunChoiceArgs, read_script};
use super::{CliError, CliExit, CliResult, Context};

/// By default a run waits for a person after this many attempts without a result.
const DEFAULT_ATTEMPTS: u32 = 3;

/// Queue a task, for `ralph worker` to work on
#[derive(Debug, clap::Args)]
pub(super) struct SubmitArgs {
    /// The task file
    #[arg(default_value = "ralph_task.md")]
    task: PathBuf,
    /// Queue this run, which exists, in place of a new one; one that ended or waits for a person is queued again, with the labels, priority
    /// and attempts that it had
    #[arg(long, value_name = "RUN", conflicts_with_all = ["task", "repo", "provider", "agent", "profile", "max_iterations", "script"])]
    run: Option<String>,
    /// Work in the repository at this address, in place of the one that the task names or lies in
    #[arg(long, value_name = "URL")]
    repo: Option<String>,
    /// Only a worker with this label may claim the run, as in `os=macos`; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<Label>,
    /// Runs with a higher priority are claimed first; 0 by default
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// The earliest start, as in `2026-11-17T20:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    not_before: Option<Timestamp>,
    /// After this many attempts without a result the run waits for a person; 3 by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: Option<u32>,
    #[command(flatten)]
    choice: RunChoiceArgs,
}

impl SubmitArgs {
    /// Whether it says how the run waits in the queue.
    fn changes_the_queue(&self) -> bool {
        !self.labels.is_empty()
            || self.priority.is_some()
            || self.not_before.is_some()
            || self.max_attempts.is_some()
    }
}

pub(super) async fn submit_run(context: &Context, args: SubmitArgs) -> CliResult {
    let store = open_store(context).await?;
    let run = if let Some(run) = &args.run {
        let run = context.control()?.find(run)?.facts().id.clone();
        if args.changes_the_queue() && store.queue_row(&run).await?.is_some() {
            let message = format!(
                "run `{run}` was queued before, and keeps its labels, priority, earliest start and attempts"
            );
            return Err(
                CliError::usage(message).with_hint(format!("`ralph submit --run {run}` queues it again"))
            );
        }
        SubmittedRun::Existing(run)
    } else {
        let mut builder = context.builder(args.choice.given())?.task_file(&args.task);
        if let Some(script) = &args.choice.script {
            builder = builder.script(read_script(context, script)?);
        }
        if let Some(url) = args.repo {
            builder = builder.repo_url(url);
        }
        SubmittedRun::New(Box::new(builder))
    };
    let request = SubmitRequest {
        run,
        labels: args.labels,
        priority: args.priority.unwrap_or_default(),
        not_before: args.not_before,
        max_attempts: args.max_attempts.unwrap_or(DEFAULT_ATTEMPTS),
    };
    let run = submit(&context.assembly, &store, request).await?;
    store.close().await;
    context.ui.say("Queued.");
    context.ui.data(&run)?;
    context.ui.next(format_args!(
        "`ralph worker` works on it, unless one runs already; `ralph status` and `ralph logs {run}` show it"
    ));
    Ok(CliExit::Success)
}

/// The store of this user.
pub(super) async fn open_store(context: &Context) -> Result<Store, CliError> {
    let config = quiet_configuration(context, Vec::new())?;
    store::open_store(context.surroundings(), &config).await
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    let expected = |_| "expected a time such as `2026-11-17T20:00:00Z`".to_owned();
    text.parse().map_err(expected)
}

/// For clap.
pub(super) fn parse_label(text: &str) -> Result<Label, StoreError> {
    Label::parse(text)
}
