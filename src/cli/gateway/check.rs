//! `ralph gateway check`

use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::Serialize;

use crate::assembly::preflight::unreachable_hint;
use crate::gateway::broker;
use crate::gateway::meter::MeterNotice;

use super::{LoopbackBroker, ServiceArgs};
use crate::cli::token::store_command;
use crate::cli::{CliError, CliExit, CliResult, Context, ErrorTopic, activity, temp_dir};
use crate::text::error_chain;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct CheckGatewayArgs {
    #[command(flatten)]
    service: ServiceArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of one check.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct GatewayCheck {
    name: &'static str,
    /// Why it failed; absent when it passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    /// What to do about the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<String>,
}

pub(super) async fn check(context: &Context, args: CheckGatewayArgs) -> CliResult {
    activity::begin("asking the service through the gateway");
    let dir = temp_dir()?;
    let notices: Arc<Mutex<Vec<MeterNotice>>> = Arc::default();
    let usage_file = dir.path().join("usage.jsonl");
    let open = LoopbackBroker::open(context, args.service, 0, usage_file, notices).await?;
    let (address, kind) = (open.address, open.kind);
    let to_reach = unreachable_hint(&open.service, "the service");
    let to_store = format!("store a valid credential: `{}`", store_command(kind));
    let asking = async {
        let http = broker::client(Vec::new())?;
        let health = http.get(format!("http://{address}/health")).send().await;
        let models = http
            .get(format!("http://{address}/v1/models"))
            .bearer_auth(open.phantom.expose());
        // Anthropic requires a version, and a beta for logins. Other services ignore these headers.
        let models = models.header("anthropic-version", "2023-06-01");
        let models = models.header("anthropic-beta", "oauth-2025-04-20").send().await;
        Ok::<_, CliError>([
            GatewayCheck::new("the gateway answers", health, &to_store, &to_reach).await,
            GatewayCheck::new(
                "the service accepts the stored credential",
                models,
                &to_store,
                &to_reach,
            )
            .await,
        ])
    };
    let checks = tokio::select! {
        checks = asking => checks?,
        served = open.broker.serve(open.listener, &open.host) => {
            let error = served.err().map_or(String::new(), |error| error.to_string());
            return Err(CliError::runtime(format!("the gateway stopped: {error}")).with_topic(ErrorTopic::Credentials));
        }
    };
    let lines = checks.each_ref().map(|check| match &check.failed {
        None => format!("PASS {}", check.name),
        Some(why) => format!("FAIL {}: {why}", check.name),
    });
    context.ui.report(args.json, &checks, lines.join("\n"))?;
    match checks.into_iter().find_map(|check| check.next_step) {
        None => Ok(CliExit::Success),
        Some(next_step) => Err(
            CliError::runtime(format!("requests with {kind} would not be served"))
                .with_topic(ErrorTopic::Credentials)
                .with_hint(next_step),
        ),
    }
}

impl GatewayCheck {
    /// A 403 counts as success: the service knows the credential and does not list models to it.
    async fn new(
        name: &'static str,
        answered: Result<reqwest::Response, reqwest::Error>,
        to_store: &str,
        to_reach: &str,
    ) -> Self {
        let mut next_step = to_reach;
        let failed = match answered {
            Ok(response) if response.status().is_success() || response.status() == 403 => None,
            Ok(response) => {
                let status = response.status();
                if matches!(status.as_u16(), 400 | 401) {
                    next_step = to_store;
                }
                let body: serde_json::Value = response.json().await.unwrap_or_default();
                let message = body["error"]["message"]
                    .as_str()
                    .map_or(String::new(), |message| format!(": {message}"));
                Some(format!("HTTP {}{message}", status.as_u16()))
            }
            Err(error) => Some(error_chain(&error.without_url())),
        };
        let next_step = failed.is_some().then(|| next_step.to_owned());
        Self {
            name,
            failed,
            next_step,
        }
    }
}
