//! `ralph gateway run`

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::mpsc;

use crate::credential::AuthMethod;
use crate::gateway::meter::MeterNotice;
use crate::id::RunId;

use super::super::Context;
use super::super::error::{CliError, Exit, io};
use super::{Loopback, Metered, Served};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    served: Served,
    /// The port to listen on; any that is free by default
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// What an agent needs to know.
#[derive(Serialize)]
struct Ready {
    base_url: String,
    phantom: String,
    mode: AuthMethod,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<Exit, CliError> {
    let dir = context.surroundings().data_dir()?.join("gateway");
    std::fs::create_dir_all(&dir).map_err(io("create", &dir))?;
    let file = dir.join(format!("spending-{}.jsonl", RunId::random()));
    let (sink, mut notices) = mpsc::unbounded_channel();
    let metered = Metered {
        file: &file,
        sink: Arc::new(sink),
    };
    let open = Loopback::open(context, args.served, args.port, metered).await?;
    let ready = Ready {
        base_url: format!("http://{}", open.address),
        phantom: open.phantom.expose().to_owned(),
        mode: open.kind.auth(),
    };
    let line = serde_json::to_string(&ready).unwrap_or_default();
    context.ui.data(line)?;
    let ended = tokio::select! {
        served = open.entrance.serve(open.listener, &open.host) => served,
        () = tell(context, &mut notices) => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    };
    let failed = |error| CliError::runtime(format!("the gateway stopped: {error}"));
    ended.map_err(failed)?;
    context
        .ui
        .say(format_args!("What calls cost is in {}.", file.display()));
    Ok(Exit::Success)
}

async fn tell(context: &Context, notices: &mut mpsc::UnboundedReceiver<MeterNotice>) {
    while let Some(notice) = notices.recv().await {
        context.ui.say(in_words(notice));
    }
}

fn in_words(notice: MeterNotice) -> String {
    match notice {
        MeterNotice::Spent {
            model, tokens, cost, ..
        } => {
            let cost = cost.map_or("at an unknown price".to_owned(), |cost| cost.to_string());
            format!("{model}: {} tokens, {cost}", tokens.total())
        }
        MeterNotice::BudgetExceeded(overdrawn) => format!("budget exceeded: {overdrawn}"),
        MeterNotice::Unpriced { model } => format!("refused: nobody knows what `{model}` costs"),
        MeterNotice::RateLimited {
            until: Some(until), ..
        } => format!("rate limited until {until}"),
        MeterNotice::RateLimited { until: None, .. } => "rate limited".to_owned(),
        MeterNotice::CredentialRefused { reason } => reason,
    }
}
