//! `ralph submit`

use std::path::PathBuf;

use jiff::Timestamp;

use crate::assembly::store;
use crate::id::RunId;
use crate::service::{SubmitRequest, SubmittedRun, submit};
use crate::store::{Label, Store, StoreError};

use super::overrides::quiet_configuration;
use super::run::{RunChoiceArgs, read_script};
use super::{CliError, CliExit, CliResult, Context};

/// Queue a task, for `ralph worker` to work on
#[derive(Debug, clap::Args)]
pub(super) struct SubmitArgs {
    /// The task file
    #[arg(default_value = "ralph_task.md")]
    task: PathBuf,
    /// Queue this run, which exists, in place of a new one; one that ended or waits for a person is queued again
    #[arg(long, value_name = "RUN", conflicts_with_all = ["task", "repo", "provider", "agent", "profile", "max_iterations", "script"])]
    run: Option<String>,
    /// Work in the repository at this address, in place of the one that the task names or lies in
    #[arg(long, value_name = "URL")]
    repo: Option<String>,
    /// Only a worker with this label may claim the run, as in `os=macos`; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<Label>,
    /// Runs with a higher priority are claimed first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i64,
    /// The earliest start, as in `2026-11-17T20:00:00Z`
    #[arg(long, value_name = "TIME")]
    not_before: Option<Timestamp>,
    /// After this many attempts without a result the run waits for a person
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: u32,
    #[command(flatten)]
    choice: RunChoiceArgs,
}

pub(super) async fn submit_run(context: &Context, args: SubmitArgs) -> CliResult {
    let store = open_store(context).await?;
    let run = if let Some(run) = &args.run {
        SubmittedRun::Existing(RunId::parse(run)?)
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
        priority: args.priority,
        not_before: args.not_before,
        max_attempts: args.max_attempts,
    };
    let run = submit(&context.assembly, &store, request).await?;
    store.close().await;
    context.ui.say(format_args!(
        "Queued. `ralph worker` works on it; `ralph status` and `ralph logs {run}` show it."
    ));
    context.ui.data(&run)?;
    Ok(CliExit::Success)
}

/// The store of this user.
pub(super) async fn open_store(context: &Context) -> Result<Store, CliError> {
    let config = quiet_configuration(context, Vec::new())?;
    store::open_store(context.surroundings(), &config).await
}

/// For clap.
pub(super) fn parse_label(text: &str) -> Result<Label, StoreError> {
    Label::parse(text)
}
