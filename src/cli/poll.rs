//! `ralph poll`

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;

use crate::assembly::issue_queue::IssueQueue;
use crate::service::{PollSettings, Poller, RunSlots, WorkOrder};

use super::issue::forward;
use super::overrides::quiet_configuration;
use super::run::read_script;
use super::signals::Signals;
use super::terminal::EventFormat;
use super::{CliExit, CliResult, Context, flags, image};

/// Work on the issues of the repository on GitHub that are ready, again and again
#[derive(Debug, clap::Args)]
pub(super) struct PollArgs {
    /// Seconds from one look at the issues to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// The longest time for one issue, in minutes; that of its run (`budget.max_wall_time_minutes`) by default
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Push the work and open pull requests, also if `forge.type` is not `github`
    #[arg(long)]
    push: bool,
    /// Only issues that this account opened
    #[arg(long, value_name = "LOGIN")]
    author: Option<String>,
    /// Only issues with this label, besides `spec`
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// How many issues are worked on at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    max_parallel: u16,
    /// End when no issue is left to work on
    #[arg(long)]
    once: bool,
    /// Print the events of all runs as JSON on stdout, one object per line
    #[arg(long)]
    json: bool,
    /// Answer from this script in place of a model, to try things out
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    #[command(flatten)]
    image: image::RebuildFlag,
}

pub(super) async fn poll(context: &Context, args: PollArgs) -> CliResult {
    let timeout = args.timeout.map(|minutes| minutes.to_string());
    let given = flags([
        ("--push", "forge.type", args.push.then(|| "github".to_owned())),
        ("--timeout", "budget.max_wall_time_minutes", timeout),
    ]);
    let config = quiet_configuration(context, given.clone())?;
    let settings = PollSettings {
        interval: Duration::from_secs(args.interval),
        author: args.author,
        label: args.label,
        slots: RunSlots::new(args.max_parallel),
        once: args.once,
    };
    // A signal from here on must not leave a claim behind.
    let signals = Signals::watch(&context.surroundings().host()).await?;
    let queue = IssueQueue::open(&context.assembly, &config, context.global.given(given.clone())?).await?;
    context.ui.say(format_args!(
        "Looking at the issues of {} every {} s.",
        queue.url(),
        args.interval
    ));
    let rebuild = args.image.into();
    let (shared, json) = (context.clone(), args.json);
    let script = match &args.script {
        Some(path) => Some(read_script(context, path)?),
        None => None,
    };
    let builder = Box::new(move || {
        let mut builder = shared.builder(given.clone())?.rebuild(rebuild);
        if let Some(script) = &script {
            builder = builder.script(script);
        }
        Ok(if json {
            builder.sink(EventFormat::Json.sink(shared.ui))
        } else {
            builder
        })
    });
    let poller = Poller::new(context.assembly.clone(), queue, settings, builder);
    let (order, orders) = watch::channel(WorkOrder::GoOn);
    let needs_attention = tokio::select! {
        result = poller.poll(orders) => result?,
        error = forward(context, signals, &order) => return Err(error),
    };
    Ok(if needs_attention > 0 {
        CliExit::Paused
    } else {
        CliExit::Success
    })
}
