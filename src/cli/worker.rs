//! `ralph worker`

use std::sync::Arc;

use tokio::sync::watch;

use crate::assembly::readiness::usable_providers;
use crate::config::Config;
use crate::service::{RunIndex, RunSlots, WorkOrder, Worker, WorkerEnd, WorkerOptions};
use crate::store::{Label, SpendingLimits};

use super::signals::Signals;
use super::submit::{open_store, parse_label};
use super::terminal::EventFormat;
use super::{CliError, CliExit, CliResult, Context, configuration};

/// Work on queued runs, one after another or several at a time
///
/// The exit code is 0 when the results of all claimed runs are in the queue, also those of runs that failed or wait for a
/// person, and after a first SIGTERM or Ctrl-C, which ends the iterations and gives the runs back.
#[derive(Debug, clap::Args)]
pub(super) struct WorkerArgs {
    /// End after one run, or at once if no run can be claimed
    #[arg(long)]
    once: bool,
    /// End when there is no run left to claim
    #[arg(long, conflicts_with = "once")]
    drain: bool,
    /// Offer this label too, as in `pool=night`; the value `*` matches every value; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<Label>,
    /// How many runs are worked on at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    max: u16,
    /// Print the events of all runs as JSON on stdout, one object per line
    #[arg(long)]
    json: bool,
}

pub(super) async fn worker(context: &Context, args: WorkerArgs) -> CliResult {
    let config = configuration(context, Vec::new())?;
    // A signal from here on must not leave a claim behind.
    let signals = Signals::watch(&context.surroundings().host()).await?;
    let store = open_store(context).await?;
    let labels = offers(context, &config, args.labels).await?;
    let shown: Vec<&str> = labels.iter().map(Label::as_str).collect();
    context.ui.say(format_args!(
        "Waiting for runs. This worker offers {}.",
        shown.join(", ")
    ));
    let end = match (args.once, args.drain) {
        (true, _) => WorkerEnd::Once,
        (false, true) => WorkerEnd::Drain,
        (false, false) => WorkerEnd::Never,
    };
    let options = options(&config, end, labels, RunSlots::new(args.max));
    let index = Arc::new(RunIndex::new(context.surroundings().clone(), store.clone())?);
    let (shared, json) = (context.clone(), args.json);
    let builder = Box::new(move || {
        let builder = shared.builder(Vec::new())?;
        Ok(if json {
            builder.sink(EventFormat::Json.sink(shared.ui))
        } else {
            builder
        })
    });
    let worker = Worker::new(context.assembly.clone(), store.clone(), index, options, builder);
    let (order, orders) = watch::channel(WorkOrder::GoOn);
    let claimed = tokio::select! {
        claimed = worker.work(orders) => claimed?,
        error = forward(context, signals, &order) => return Err(error),
    };
    store.close().await;
    if claimed == 0 {
        context.ui.say("There was no run for this worker.");
    }
    Ok(CliExit::Success)
}

/// How a worker with this configuration works.
pub(super) fn options(config: &Config, end: WorkerEnd, labels: Vec<Label>, slots: RunSlots) -> WorkerOptions {
    let settings = &config.settings.worker;
    WorkerOptions {
        end,
        labels,
        slots,
        lease: settings.lease,
        limits: SpendingLimits {
            per_day: settings.max_cost_per_day,
            per_project: settings.max_cost_per_project_per_day,
        },
    }
}

/// What this worker offers: the host, its system, the providers that can be used here, and what was given.
pub(super) async fn offers(
    context: &Context,
    config: &Config,
    given: Vec<Label>,
) -> Result<Vec<Label>, CliError> {
    let host = context.surroundings().owner().host;
    let mut texts = vec![
        format!("host={host}"),
        format!("os={}", std::env::consts::OS),
        format!("arch={}", std::env::consts::ARCH),
    ];
    let settings = context.global.given(Vec::new())?;
    let providers = usable_providers(&context.assembly, &settings, config).await;
    texts.extend(providers.iter().map(|name| format!("provider={name}")));
    let found: Result<Vec<Label>, _> = texts.iter().map(|text| Label::parse(text)).collect();
    let mut labels = found?;
    labels.extend(given);
    Ok(labels)
}

/// Passes signals on: the first one gives runs back after their iteration, the second one at once, the third one does not wait
/// for the queue either.
async fn forward(context: &Context, signals: Signals, order: &watch::Sender<WorkOrder>) -> CliError {
    let said = [
        "Ending iterations; the runs go back to the queue. Press Ctrl-C again to end at once.",
        "Ending at once.",
    ];
    signals.forward(context.ui, order, WorkOrder::Pause, said).await;
    CliError::interrupted("ended before the runs were back in the queue")
        .with_hint("their leases end by themselves, and another worker goes on")
}
