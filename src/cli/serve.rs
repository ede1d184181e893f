//! `ralph serve`

use crate::api::{Api, ApiListener, ApiSettings, LOGIN_LINK, ListenAddress, new_secret};
use crate::dashboard;
use crate::exec::{Command, Discard};
use crate::store::{ApiScope, ApiSecretKind, Store};

use super::overrides::quiet_configuration;
use super::signals::Signals;
use super::submit::open_store;
use super::ui::columns;
use super::{CliError, CliExit, CliResult, Context};

/// Serve the API: look at the runs of this host and steer them over HTTP
#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// The address and port, or `unix:PATH` for a socket file that only you can open
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: ListenAddress,
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
    if tokens.is_empty() && front == ServiceFront::Api {
        context.ui.say(format_args!("No token exists yet. {creates}."));
    }
    let login = login_link(&store, &listener, front).await?;
    let api = Api::new(context.surroundings().clone(), store, settings)?;
    context.ui.say(format_args!("Serving the API on {listener}."));
    let router = match front {
        ServiceFront::Api => api.router(),
        ServiceFront::Dashboard { .. } => dashboard::router(api),
    };
    if let Some(link) = login {
        invite(context, &link, front).await;
    }
    tokio::select! {
        served = listener.serve(router) => {
            served.map_err(|error| CliError::runtime(format!("the API stopped: {error}")))?;
        }
        () = signals.next() => {}
    }
    Ok(CliExit::Success)
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

/// Shows the link, and opens it in a browser on a terminal.
async fn invite(context: &Context, link: &str, front: ServiceFront) {
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
    if host.has_program(opener) {
        // Without a browser the link is there.
        let _ = host.run(&Command::new(opener).arg(link), &mut Discard).await;
    }
}
