//! `ralph watch`: the runs in a terminal, as they work.
//!
//! `source` answers the operations of the API, for the runs of this host or for those of a service; `poller` fetches, `state`
//! and `keys` change what is shown, `draw` draws it, `screen` is the terminal around them.

mod client;
mod draw;
mod keys;
mod overview;
mod plain;
mod poller;
mod screen;
mod source;
mod state;
#[cfg(test)]
mod tests;
mod text_view;

use crate::text::cut_middle;

use super::overrides::quiet_configuration;
use super::select::select_id;
use super::ui::FullScreen;
use super::{CliError, CliResult, Context, ErrorTopic};
use client::RunClient;
use source::{LocalRuns, RemoteRuns, TOKEN_VARIABLE};

/// How much of a name that means no run is shown, in characters.
const LONGEST_NAME: usize = 100;

/// Watch runs in the terminal, as they work, and steer them by keys
///
/// Shows all runs, or one with its budgets, its log and its changes; `?` lists the keys. Without a terminal it prints lines: one for
/// each run, or the log of the run until its end.
#[derive(Debug, clap::Args)]
pub(super) struct WatchArgs {
    /// Open this run; its id, or the beginning of it
    run: Option<String>,
    /// Watch the runs of the service at this address, with the token in `RALPH_API_TOKEN`
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

pub(super) async fn watch(context: &Context, args: WatchArgs) -> CliResult {
    let surroundings = context.surroundings();
    let client = match &args.url {
        None => RunClient::new(LocalRuns::open(context).await?),
        Some(url) => {
            let token = quiet_configuration(context, Vec::new())?.credential(TOKEN_VARIABLE);
            RunClient::new(RemoteRuns::new(url, token)?)
        }
    };
    let run = match (&args.run, &args.url) {
        (None, _) => None,
        (Some(name), None) => Some(select_id(context, Some(name))?.to_string()),
        (Some(name), Some(_)) => Some(remote_run(&client, name).await?),
    };
    // What is wrong at the start ends the command, so that the reason stays on the terminal.
    match &run {
        Some(run) => drop(client.details(run).await?),
        None => drop(client.runs().await?),
    }
    let is_dumb = surroundings.var("TERM").is_none_or(|term| term == "dumb");
    if FullScreen::is_possible() && !is_dumb {
        return screen::show(context, client, run).await;
    }
    match run {
        Some(run) => plain::follow(context, &client, &run).await,
        None => plain::list(context, &client).await,
    }
}

/// The id of a run of a service: the one that this is the id of, or the beginning of its id.
async fn remote_run(client: &RunClient, name: &str) -> Result<String, CliError> {
    let listed = client.runs_with(name).await?.runs;
    let ids = listed.into_iter().map(|row| row.run);
    let mut found: Vec<String> = ids
        .filter(|id| !name.is_empty() && id.starts_with(name))
        .collect();
    if found.iter().any(|id| id == name) {
        return Ok(name.to_owned());
    }
    let shown = cut_middle(name, LONGEST_NAME);
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => {
            let message = format!("{} has no run `{shown}`", client.name());
            Err(CliError::usage(message)
                .with_topic(ErrorTopic::Service)
                .with_hint("`ralph watch --url URL` without a run lists them"))
        }
        (Some(_), _) => {
            let message = format!("`{shown}` is the beginning of several ids");
            Err(CliError::usage(message)
                .with_topic(ErrorTopic::Service)
                .with_hint("give more of the id"))
        }
    }
}
