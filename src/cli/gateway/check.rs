//! `ralph gateway check`

use crate::text::error_chain;
use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::gateway::broker;
use crate::gateway::meter::MeterNotice;

use super::super::Context;
use super::super::error::{CliError, Exit};
use super::{Loopback, Metered, Served};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    served: Served,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One thing that must hold.
#[derive(Serialize)]
struct Check {
    name: &'static str,
    /// Why it does not hold; absent when it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

pub(super) async fn check(context: &Context, args: Args) -> Result<Exit, CliError> {
    let dir =
        tempfile::tempdir().map_err(|error| CliError::runtime(format!("no temporary directory: {error}")))?;
    let notices: Arc<Mutex<Vec<MeterNotice>>> = Arc::default();
    let metered = Metered {
        file: &dir.path().join("spending.jsonl"),
        sink: notices.clone(),
    };
    let Loopback {
        entrance,
        kind,
        host,
        phantom,
        listener,
        address,
    } = Loopback::open(context, args.served, 0, metered).await?;
    let asking = async {
        let http = broker::client(Vec::new())?;
        let health = http.get(format!("http://{address}/health")).send().await;
        let models = http
            .get(format!("http://{address}/v1/models"))
            .bearer_auth(phantom.expose());
        // Anthropic wants to be told a version, and logins need their beta; others do not mind.
        let models = models.header("anthropic-version", "2023-06-01");
        let models = models.header("anthropic-beta", "oauth-2025-04-20").send().await;
        Ok::<_, CliError>([
            Check::new("the gateway answers", health).await,
            Check::new("the service takes the stored credential", models).await,
        ])
    };
    let checks = tokio::select! {
        checks = asking => checks?,
        served = entrance.serve(listener, &host) => {
            let error = served.err().map_or(String::new(), |error| error.to_string());
            return Err(CliError::runtime(format!("the gateway stopped: {error}")));
        }
    };
    report(context, &checks, args.json)?;
    if checks.iter().all(|check| check.failed.is_none()) {
        Ok(Exit::Success)
    } else {
        Err(CliError::runtime(format!("calls with {kind} would not be served")).hint("see above"))
    }
}

impl Check {
    /// 403 is from a service that knows the credential and lists no models to it.
    async fn new(name: &'static str, answered: Result<reqwest::Response, reqwest::Error>) -> Self {
        let failed = match answered {
            Ok(response) if response.status().is_success() || response.status() == 403 => None,
            Ok(response) => {
                let status = response.status();
                let said: serde_json::Value = response.json().await.unwrap_or_default();
                let said = said["error"]["message"]
                    .as_str()
                    .map_or(String::new(), |said| format!(": {said}"));
                Some(format!("HTTP {}{said}", status.as_u16()))
            }
            Err(error) => Some(error_chain(&error.without_url())),
        };
        Self { name, failed }
    }
}

fn report(context: &Context, checks: &[Check], json: bool) -> Result<(), CliError> {
    if json {
        return context.ui.json(&checks);
    }
    for check in checks {
        context.ui.data(match &check.failed {
            None => format!("PASS {}", check.name),
            Some(why) => format!("FAIL {}: {why}", check.name),
        })?;
    }
    Ok(())
}
