//! `ralph serve`

use crate::api::{Api, ApiListener, ApiSettings, ListenAddress};

use super::overrides::quiet_configuration;
use super::signals::Signals;
use super::submit::open_store;
use super::{CliError, CliExit, CliResult, Context};

/// Serve the API: look at the runs of this host and steer them over HTTP
#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// The address and port, or `unix:PATH` for a socket file that only you can open
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: ListenAddress,
}

pub(super) async fn serve(context: &Context, args: ServeArgs) -> CliResult {
    let config = quiet_configuration(context, Vec::new())?;
    let mut signals = Signals::watch(&context.surroundings().host()).await?;
    let store = open_store(context).await?;
    let tokens = store.api_tokens().await?;
    let listener = ApiListener::bind(&args.listen).await.map_err(|error| {
        CliError::runtime(format!("cannot listen on {}: {error}", args.listen))
            .with_hint("choose another address with --listen")
    })?;
    let access = &config.settings.api;
    let settings = ApiSettings {
        bound: listener.tcp_address().map(|address| address.ip()),
        allowed_hosts: access.allowed_hosts.clone(),
        allowed_origins: access.allowed_origins.clone(),
        dangerously_allow_local: access.dangerously_allow_local,
    };
    let creates = "`ralph api-token create NAME` creates a token";
    if settings.is_exposed() {
        if tokens.is_empty() {
            let message = format!(
                "{} can be reached by other hosts, and no API token exists",
                args.listen
            );
            return Err(CliError::usage(message).with_hint(creates));
        }
        context.ui.say(format_args!(
            "warning: other hosts can reach {listener}, without encryption: put a proxy with TLS in front of it"
        ));
    }
    if tokens.is_empty() {
        context.ui.say(format_args!("No token exists yet. {creates}."));
    }
    let api = Api::new(context.surroundings().clone(), store, settings)?;
    context.ui.say(format_args!("Serving the API on {listener}."));
    tokio::select! {
        served = listener.serve(api.router()) => {
            served.map_err(|error| CliError::runtime(format!("the API stopped: {error}")))?;
        }
        () = signals.next() => {}
    }
    Ok(CliExit::Success)
}
