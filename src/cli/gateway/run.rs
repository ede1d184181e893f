//! `ralph gateway run`

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::mpsc;

use crate::credential::AuthMethod;
use crate::gateway::meter::MeterNotice;
use crate::id::RunId;

use super::{LoopbackBroker, ServiceArgs};
use crate::cli::{CliError, CliExit, CliResult, Context, ErrorTopic, io_error};
use crate::text::counted;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct RunGatewayArgs {
    #[command(flatten)]
    service: ServiceArgs,
    /// The port to listen on; a free one by default
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// What an agent needs, as JSON.
#[derive(Serialize)]
struct GatewayReady {
    base_url: String,
    phantom: String,
    mode: AuthMethod,
}

pub(super) async fn run(context: &Context, args: RunGatewayArgs) -> CliResult {
    let dir = context.surroundings().data_dir()?.join("gateway");
    std::fs::create_dir_all(&dir).map_err(io_error("create", &dir))?;
    let file = dir.join(format!("spending-{}.jsonl", RunId::random()));
    let (sink, mut notices) = mpsc::unbounded_channel();
    let open = LoopbackBroker::open(context, args.service, args.port, file.clone(), Arc::new(sink)).await?;
    let ready = GatewayReady {
        base_url: format!("http://{}", open.address),
        phantom: open.phantom.expose().to_owned(),
        mode: open.kind.auth,
    };
    let line = serde_json::to_string(&ready).unwrap_or_default();
    context.ui.data(line)?;
    let ended = tokio::select! {
        served = open.broker.serve(open.listener, &open.host) => served,
        () = show_notices(context, &mut notices) => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    };
    let failed = |error| {
        CliError::runtime(format!("the gateway stopped: {error}")).with_topic(ErrorTopic::Credentials)
    };
    ended.map_err(failed)?;
    context
        .ui
        .say(format_args!("Usage is recorded in {}.", file.display()));
    Ok(CliExit::Success)
}

async fn show_notices(context: &Context, notices: &mut mpsc::UnboundedReceiver<MeterNotice>) {
    while let Some(notice) = notices.recv().await {
        context.ui.say(describe_notice(notice));
    }
}

fn describe_notice(notice: MeterNotice) -> String {
    match notice {
        MeterNotice::Spent {
            model, tokens, cost, ..
        } => {
            let cost = cost.map_or("at an unknown price".to_owned(), |cost| cost.to_string());
            format!("{model}: {}, {cost}", counted(tokens.total(), "token"))
        }
        MeterNotice::BudgetExceeded(overdrawn) => format!("budget exceeded: {overdrawn}"),
        MeterNotice::Unpriced { model } => format!("refused: the price of `{model}` is unknown"),
        MeterNotice::RateLimited {
            until: Some(until), ..
        } => format!("rate limited until {until}"),
        MeterNotice::RateLimited { until: None, .. } => "rate limited".to_owned(),
        MeterNotice::CredentialRefused { reason } => reason,
    }
}
