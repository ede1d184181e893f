//! `ralph network`

use std::collections::BTreeSet;

use clap::Subcommand;
use schemars::JsonSchema;
use serde::Serialize;

use crate::assembly::configuration::project_dir;
use crate::assembly::{NetworkUse, RunControl, image, package_clients, provider};
use crate::gateway::audit::AuditVerdict;
use crate::network::{Denial, Policy, PolicyRequest, RequestContent, RequestHost, host_rule};
use crate::sandbox::docker::SealPlan;
use crate::sandbox::{NetworkEnforcement, SandboxError};
use crate::state::{Intervention, RunDir};

use super::control::said;
use super::{CliError, CliExit, CliResult, Context, ErrorTopic, configuration, select_run};

/// Show what a sandbox may reach, and what it tried to reach
#[derive(Debug, Subcommand)]
pub(super) enum NetworkCommand {
    /// Show whether a host name may be reached and which rule decides; exits with 1 when it may not
    Check(CheckNetworkArgs),
    /// Print how the network of a sandbox would be sealed: routes, firewall rules and listeners
    Rules,
    /// Let a run reach more hosts; without hosts, list what was blocked
    Allow(AllowNetworkArgs),
    /// Print the allowlist that a run would have needed
    Suggest {
        /// The run; the newest one by default
        #[arg(long, value_name = "RUN")]
        from: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct CheckNetworkArgs {
    /// A host name or address; port 443 by default
    #[arg(value_name = "HOST[:PORT]", value_parser = parse_target)]
    target: (RequestHost, u16),
    /// The method of a request, for rules that name methods
    #[arg(long, requires = "path")]
    method: Option<String>,
    /// The path of a request, for rules that name paths
    #[arg(long, requires = "method")]
    path: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct AllowNetworkArgs {
    /// The run
    run: String,
    /// The hosts; ports 80 and 443 by default
    #[arg(value_name = "HOST[:PORT]")]
    hosts: Vec<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(super) async fn network(context: &Context, command: NetworkCommand) -> CliResult {
    match command {
        NetworkCommand::Check(args) => check(context, args).await,
        NetworkCommand::Rules => rules(context).await,
        NetworkCommand::Allow(args) => allow(context, args),
        NetworkCommand::Suggest { from, json } => suggest(context, from.as_deref(), json),
    }
}

/// Why a run may have no recorded connections.
const WHAT_IS_RECORDED: &str = "only sandboxes behind the gateway are recorded, not those of `local`";

/// The port of HTTPS.
const TLS_PORT: u16 = 443;

/// The output of `check --json`.
#[derive(Serialize, JsonSchema)]
pub(super) struct NetworkCheck {
    host: String,
    port: u16,
    verdict: AuditVerdict,
    /// Whether the gateway decrypts its TLS.
    inspected: bool,
    /// The rule that allows it, or why it is denied.
    reason: String,
    /// The text of the deciding rule, if one decides.
    line: Option<String>,
    /// Where the rule comes from: a preset and a file of the client, if any, then a file.
    place: Option<String>,
}

async fn check(context: &Context, args: CheckNetworkArgs) -> CliResult {
    let (policy, is_enforced) = policy(context).await?;
    let (host, port) = args.target;
    let inspected = host.name().is_some_and(|name| policy.inspects(name, port));
    let seen = match args.method.zip(args.path) {
        // The gateway sees methods and paths only in plain HTTP and in inspected TLS.
        Some((method, path)) if inspected || port != TLS_PORT => RequestContent::Http { method, path },
        _ => RequestContent::Opaque,
    };
    let request = PolicyRequest {
        host,
        port,
        content: seen,
    };
    let judged = policy.judge(&request);
    let (verdict, line, reason) = match &judged {
        Ok(line) => (AuditVerdict::Allowed, Some(line), format!("by {line}")),
        Err(denial) => {
            let reason = match denial {
                Denial::NotInspected(line) if inspected => {
                    format!("{line} depends on the request: add --method and --path")
                }
                _ => denial.to_string(),
            };
            (AuditVerdict::Denied, denial.line(), reason)
        }
    };
    let checked = NetworkCheck {
        host: request.host.to_string(),
        port,
        verdict,
        inspected,
        reason,
        line: line.map(|line| line.text.clone()),
        place: line
            .map(|line| line.place.clone())
            .filter(|place| !place.is_empty()),
    };
    let NetworkCheck { host, reason, .. } = &checked;
    let opened = if inspected { " (inspected)" } else { "" };
    let text = format!("{verdict}: {host}:{port}{opened}: {reason}");
    context.ui.report(args.json, &checked, text)?;
    let missing = judged
        .err()
        .and_then(|denial| missing_rule(&denial, &request.host, port));
    if let Some(rule) = missing.filter(|_| is_enforced) {
        context
            .ui
            .next(format_args!("add `{rule}` to sandbox.network.allowed"));
    }
    Ok(match verdict {
        AuditVerdict::Allowed => CliExit::Success,
        AuditVerdict::Denied => CliExit::Failure,
    })
}

/// The rule that would allow a denied request, if it is denied because there is no such rule.
fn missing_rule(denial: &Denial, host: &RequestHost, port: u16) -> Option<String> {
    match denial {
        Denial::NotListed if matches!(port, 80 | TLS_PORT) => Some(host.to_string()),
        Denial::NotListed | Denial::Port { .. } => Some(format!("{host}:{port}")),
        Denial::Request { wanted, .. } => Some(wanted.clone()),
        _ => None,
    }
}

async fn rules(context: &Context) -> CliResult {
    let (policy, _) = policy(context).await?;
    match SealPlan::new(&policy).map_err(SandboxError::from)? {
        Some(plan) => context.ui.data(plan.to_string().trim_end())?,
        None => context
            .ui
            .say("Nothing is sealed: the policy allows every connection."),
    }
    Ok(CliExit::Success)
}

/// The policy of a run that would start in this directory, as far as it is known without building the image, and whether the
/// provider enforces it. A warning says if it does not.
async fn policy(context: &Context) -> Result<(Policy, bool), CliError> {
    let config = configuration(context, Vec::new())?;
    let provider = provider::create_provider(&context.assembly, &config)?;
    let is_enforced = provider.capabilities().network != NetworkEnforcement::Nothing;
    if !is_enforced {
        context.ui.say(format_args!(
            "warning: `{}` enforces no network policy: a run there reaches every host",
            provider.name()
        ));
    }
    let project = project_dir(context.surroundings().dir());
    let image = if package_clients::depends_on_image(&config) {
        let found = image::find(&context.assembly, &config, &project).await;
        let unknown = "The package registries configured in the image are unknown";
        match &found {
            Ok(Some(_)) => {}
            Ok(None) => context.ui.say(format_args!("{unknown}: it is not built yet.")),
            Err(error) => context.ui.say(format_args!("{unknown}: {error}.")),
        }
        found.ok().flatten()
    } else {
        None
    };
    let policy =
        package_clients::network_policy(&context.assembly, &config, Some(&project), image.as_deref()).await?;
    Ok((policy, is_enforced))
}

fn allow(context: &Context, args: AllowNetworkArgs) -> CliResult {
    let control = context.control()?;
    let run = control.find(&args.run)?;
    if args.hosts.is_empty() {
        return list_blocked(context, &run);
    }
    let request = Intervention::AllowHosts { hosts: args.hosts };
    control.check(&run, &request)?;
    let (id, what) = (&run.facts().id, request.summary());
    if !args.yes && !confirm(context, &format!("Run {id}: {what}?"))? {
        return Err(CliError::runtime("nothing was allowed").with_topic(ErrorTopic::Network));
    }
    let request = control.intervene(&run, request)?;
    said(context, &run, &request);
    Ok(CliExit::Success)
}

/// Lists what `ralph network allow` would allow.
fn list_blocked(context: &Context, run: &RunDir) -> CliResult {
    let used = RunControl::network_use(run)?;
    let is_recorded = !used.reached.is_empty() || !used.blocked.is_empty();
    let mut hosts = BTreeSet::new();
    for asked in used.blocked {
        hosts.extend(asked.suggestion().filter(|line| host_rule(line).is_ok()));
    }
    for host in &hosts {
        context.ui.data(host)?;
    }
    let id = &run.facts().id;
    context.ui.say(match (hosts.is_empty(), is_recorded) {
        (false, _) => format!("These hosts were blocked. `ralph network allow {id} HOST` allows one."),
        (true, true) => format!("No host was blocked that run {id} could be allowed to reach."),
        (true, false) => {
            format!("No host was blocked: no connections of run {id} are recorded; {WHAT_IS_RECORDED}.")
        }
    });
    Ok(CliExit::Success)
}

/// Asks the person at the terminal.
fn confirm(context: &Context, question: &str) -> Result<bool, CliError> {
    if !context.surroundings().is_attended() {
        return Err(
            CliError::usage("this needs a person to agree, and no person is at the terminal")
                .with_hint("add --yes to agree"),
        );
    }
    context.ui.say(format_args!("{question} [y/N]"));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| {
        CliError::runtime(format!("cannot read the answer: {error}")).with_topic(ErrorTopic::Network)
    })?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn suggest(context: &Context, run: Option<&str>, json: bool) -> CliResult {
    let run = select_run(context, run)?;
    let suggested = RunControl::network_use(&run)?;
    if suggested.reached.is_empty() && suggested.blocked.is_empty() {
        let id = &run.facts().id;
        return Err(
            CliError::runtime(format!("no connections of run `{id}` are recorded"))
                .with_topic(ErrorTopic::Network)
                .with_hint(WHAT_IS_RECORDED),
        );
    }
    context
        .ui
        .report(json, &suggested, to_toml(&suggested).trim_end())?;
    context
        .ui
        .next("put these lines into `ralph.toml`, without the hosts that a sandbox must not reach");
    Ok(CliExit::Success)
}

/// An allowlist of what was reached. What was blocked is added as comments.
fn to_toml(suggested: &NetworkUse) -> String {
    let mut known = BTreeSet::new();
    let (mut allowed, mut besides) = (Vec::new(), Vec::new());
    for asked in suggested.reached.iter().chain(&suggested.blocked) {
        let (verdict, count) = (asked.key.verdict, asked.count);
        match (verdict, asked.suggestion()) {
            (_, Some(line)) if !known.insert(line.clone()) => {}
            (AuditVerdict::Allowed, Some(line)) => {
                allowed.push(format!("  \"{line}\", # reached {count}x\n"));
            }
            (AuditVerdict::Denied, Some(line)) => {
                allowed.push(format!("  # \"{line}\", # blocked {count}x\n"));
            }
            (_, None) => besides.push(format!("# {asked}\n")),
        }
    }
    let (allowed, besides) = (allowed.concat(), besides.concat());
    format!("[sandbox.network]\npolicy = \"allowlist\"\nallowed = [\n{allowed}]\n{besides}")
}

fn parse_target(text: &str) -> Result<(RequestHost, u16), String> {
    if text.contains("://") {
        return Err(
            "expected a host name without `http://`, as in `example.com` or `example.com:8080`".to_owned(),
        );
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let wrong = |_| "the port must be a number from 1 to 65535".to_owned();
            (host, port.parse().map_err(wrong)?)
        }
        _ => (text, TLS_PORT),
    };
    let host = host.parse::<RequestHost>().map_err(|error| error.to_string())?;
    Ok((host, port))
}
