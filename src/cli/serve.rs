//! `ralph serve`

use std::sync::Arc;

use tokio::sync::watch;

use crate::api::{Api, ApiListener, ApiSettings, LOGIN_LINK, ListenAddress, new_secret};
use crate::assembly::issue_queue::IssueQueue;
use crate::config::{Config, ConfigOverride};
use crate::dashboard;
use crate::exec::{Command, Discard};
use crate::metrics::Metrics;
use crate::service::{
    NewBuilder, PollSettings, Poller, RunIndex, RunSlots, WorkOrder, Worker, WorkerEnd, WorkerOptions,
    keep_going, remove_ended_runs,
};
use crate::store::{ApiScope, ApiSecretKind, Label, Store};
use crate::text::counted;

use super::overrides::{flags, quiet_configuration};
use super::signals::Signals;
use super::submit::{open_store, parse_label};
use super::ui::columns;
use super::{CliError, CliExit, CliResult, Context, ErrorTopic, worker};

/// Serve the API, and work on queued runs and on issues, in one process
///
/// The API is always served. Queued runs are worked on up to `--workers`, and issues too with `--poll`. A first SIGTERM or Ctrl-C
/// ends the iterations and gives runs and issues back; a second one ends at once.
#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// The address and port, or `unix:PATH` for a socket file that only you can open
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: ListenAddress,
    /// How many runs are worked on at the same time; 0 only serves the API; `service.workers` by default
    #[arg(long, value_name = "N")]
    workers: Option<u16>,
    /// Offer this label to queued runs too, as in `pool=night`; the value `*` matches every value; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<Label>,
    /// Work on the issues of the repository on GitHub that are ready, as `ralph poll` does
    #[arg(long)]
    poll: bool,
}

impl ServeArgs {
    fn given(&self) -> Vec<ConfigOverride> {
        flags([
            (
                "--workers",
                "service.workers",
                self.workers.map(|count| count.to_string()),
            ),
            ("--poll", "service.poll", self.poll.then(|| "true".to_owned())),
        ])
    }
}

/// What is in front of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceFront {
    /// Nothing: programs use it.
    Api,
    /// The pages, for people. `opens` starts a browser.
    Dashboard { opens: bool },
}

pub(super) async fn serve(context: &Context, args: ServeArgs, front: ServiceFront) -> CliResult {
    let config = quiet_configuration(context, args.given())?;
    let signals = Signals::watch(&context.surroundings().host()).await?;
    let store = open_store(context).await?;
    let listener = ApiListener::bind(&args.listen).await.map_err(|error| {
        CliError::runtime(format!("cannot listen on {}: {error}", args.listen))
            .with_topic(ErrorTopic::Service)
            .with_hint("choose another address with --listen")
    })?;
    let settings = access(context, &config, &store, &listener, front).await?;
    let metrics = Metrics::default();
    let api = Api::new(context.surroundings().clone(), store.clone(), settings)?.metrics(metrics.clone());
    let parts = ServiceParts::prepare(context, &config, &store, args, metrics, api.index()).await?;
    let (order, orders) = watch::channel(WorkOrder::GoOn);
    let login = login_link(&store, &listener, front).await?;
    context.ui.say(format_args!("Serving the API on {listener}."));
    let router = match front {
        ServiceFront::Api => api.router(),
        ServiceFront::Dashboard { .. } => dashboard::router(api),
    };
    if let Some(link) = login {
        invite(context, &link, front);
    }
    tokio::select! {
        served = listener.serve(router) => {
            served.map_err(|error| CliError::runtime(format!("the API stopped: {error}")).with_topic(ErrorTopic::Service))?;
        }
        () = parts.work(orders) => {}
        error = forward(context, signals, &order) => return Err(error),
    }
    store.close().await;
    Ok(CliExit::Success)
}

/// Who may use the API at this address. Refuses one that other hosts reach if there is no way in: no token, and no pages whose
/// link logs a browser in.
async fn access(
    context: &Context,
    config: &Config,
    store: &Store,
    listener: &ApiListener,
    front: ServiceFront,
) -> Result<ApiSettings, CliError> {
    let tokens = store.api_tokens().await?;
    let access = &config.settings.api;
    let settings = ApiSettings {
        bound: listener.tcp_address().map(|address| address.ip()),
        allowed_hosts: access.allowed_hosts.clone(),
        allowed_origins: access.allowed_origins.clone(),
        dangerously_allow_local: access.dangerously_allow_local,
        mode: config.settings.dashboard.mode,
    };
    let creates = "`ralph api-token create NAME` creates a token";
    if settings.is_exposed() {
        if tokens.is_empty() && front == ServiceFront::Api {
            let message = format!("{listener} can be reached by other hosts, and no API token exists");
            return Err(CliError::usage(message)
                .with_topic(ErrorTopic::Service)
                .with_hint(creates));
        }
        context.ui.say(format_args!(
            "warning: other hosts can reach {listener}, without encryption: put a proxy with TLS in front of it"
        ));
    }
    if tokens.is_empty() && front == ServiceFront::Api {
        context.ui.say(format_args!("No token exists yet. {creates}."));
    }
    Ok(settings)
}

/// What the service does besides answering requests.
struct ServiceParts {
    context: Context,
    config: Config,
    store: Store,
    metrics: Metrics,
    index: Arc<RunIndex>,
    /// `None` if it does not work on queued runs.
    worker: Option<WorkerOptions>,
    /// `None` if it does not work on issues.
    poller: Option<(Arc<IssueQueue>, PollSettings)>,
}

impl ServiceParts {
    /// Finds out what this host can do, and refuses what the configuration cannot have.
    async fn prepare(
        context: &Context,
        config: &Config,
        store: &Store,
        args: ServeArgs,
        metrics: Metrics,
        index: Arc<RunIndex>,
    ) -> Result<Self, CliError> {
        let settings = &config.settings.service;
        if settings.poll && settings.workers == 0 {
            return Err(
                CliError::usage("issues are worked on by this process, and `service.workers` is 0")
                    .with_topic(ErrorTopic::Service)
                    .with_hint("leave out `--poll`, or set `--workers` to 1 or more"),
            );
        }
        let slots = RunSlots::new(settings.workers);
        let worker = if settings.workers > 0 {
            let labels = worker::offers(context, config, args.labels).await?;
            let shown: Vec<&str> = labels.iter().map(Label::as_str).collect();
            context.ui.say(format_args!(
                "Working on up to {} of the queue at a time, with {}.",
                counted(settings.workers, "run"),
                shown.join(", ")
            ));
            Some(worker::options(config, WorkerEnd::Never, labels, slots.clone()))
        } else {
            None
        };
        let poller = if settings.poll {
            let given = context.global.given(Vec::new())?;
            let queue = IssueQueue::open(&context.assembly, config, given).await?;
            let (url, seconds) = (queue.url(), settings.poll_interval.as_secs());
            context
                .ui
                .say(format_args!("Looking at the issues of {url} every {seconds} s."));
            let poll = PollSettings {
                interval: settings.poll_interval,
                author: None,
                label: None,
                slots,
                once: false,
            };
            Some((queue, poll))
        } else {
            None
        };
        Ok(Self {
            context: context.clone(),
            config: config.clone(),
            store: store.clone(),
            metrics,
            index,
            worker,
            poller,
        })
    }

    /// Works until `orders` ask for an end, and what was begun has ended.
    async fn work(&self, orders: watch::Receiver<WorkOrder>) {
        let reporter = &self.context.assembly.reporter;
        let queue = async {
            let Some(options) = &self.worker else { return };
            let start = |orders| {
                let (context, store) = (self.context.assembly.clone(), self.store.clone());
                let index = self.index.clone();
                Worker::new(context, store, index, options.clone(), self.new_builder()).work(orders)
            };
            keep_going(reporter.clone(), "the worker", orders.clone(), start).await;
        };
        let issues = async {
            let Some((queue, settings)) = &self.poller else {
                return;
            };
            let start = |orders| {
                let context = self.context.assembly.clone();
                Poller::new(context, queue.clone(), settings.clone(), self.new_builder()).poll(orders)
            };
            keep_going(reporter.clone(), "the poller", orders.clone(), start).await;
        };
        let keep = self.config.settings.service.keep_ended;
        let upkeep = remove_ended_runs(reporter.clone(), self.store.clone(), keep, orders.clone());
        tokio::join!(queue, issues, upkeep);
        if let Err(error) = self.index.look().await {
            reporter.warn(&format!("the index of runs is not up to date: {error}"));
        }
    }

    /// Makes the builder of each run. Its events are counted.
    fn new_builder(&self) -> NewBuilder {
        let (context, metrics) = (self.context.clone(), self.metrics.clone());
        Box::new(move || Ok(context.builder(Vec::new())?.sink(metrics.sink())))
    }
}

/// Passes signals on: the first one gives runs and issues back after their iterations, the second one at once.
async fn forward(context: &Context, signals: Signals, order: &watch::Sender<WorkOrder>) -> CliError {
    let said = [
        "Ending iterations; runs go back to the queue, issues are ready again. Press Ctrl-C again to end at once.",
        "Ending at once.",
    ];
    // A worker gives its runs back at this order too; the runs of issues end without needing a person.
    signals.forward(context.ui, order, WorkOrder::Stop, said).await;
    CliError::interrupted("ended before all runs and issues were given back")
        .with_hint("their leases and claims end by themselves, and another process goes on")
}

/// A link that logs a browser in once. `None` for the API alone.
async fn login_link(
    store: &Store,
    listener: &ApiListener,
    front: ServiceFront,
) -> Result<Option<String>, CliError> {
    let (ServiceFront::Dashboard { .. }, Some(address)) = (front, listener.tcp_address()) else {
        return Ok(None);
    };
    let secret = new_secret().map_err(CliError::runtime)?;
    let kind = ApiSecretKind::Login;
    store
        .add_api_secret(&secret, kind, "browser", ApiScope::Admin, LOGIN_LINK)
        .await?;
    // A browser cannot open the address of all interfaces.
    let host = match address.ip() {
        ip if ip.is_unspecified() => format!("localhost:{}", address.port()),
        _ => address.to_string(),
    };
    Ok(Some(format!("http://{host}/login?secret={}", secret.expose())))
}

/// Shows the link, and opens the page to log in on a terminal. The secret is not part of that address, since other users can
/// read the arguments of programs.
fn invite(context: &Context, link: &str, front: ServiceFront) {
    context.ui.say(format_args!(
        "Open the dashboard, within 15 minutes and once: {link}\n`ralph api-token login` prints another secret. Ctrl-C ends it."
    ));
    if front != (ServiceFront::Dashboard { opens: true }) || columns().is_none() {
        return;
    }
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let host = context.surroundings().desktop_host();
    let (page, _) = link.split_once('?').unwrap_or((link, ""));
    if host.has_program(opener) {
        let command = Command::new(opener).arg(page);
        // It may run for as long as the browser does. Without a browser the link is there.
        tokio::spawn(async move { host.run(&command, &mut Discard).await });
    }
}
