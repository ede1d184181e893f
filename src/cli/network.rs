//! `ralph network`

use std::collections::BTreeSet;

use clap::Subcommand;
use serde::Serialize;

use crate::assembly::configuration::project_dir;
use crate::assembly::{clients, image, spec};
use crate::gateway::audit::{Asked, AuditLog, Outcome, Tally};
use crate::id::RunId;
use crate::network::{
    Denial, HostNameError, Policy, PolicyRequest, PolicyVerdict, RequestContent, RequestHost,
};
use crate::sandbox::SandboxError;
use crate::sandbox::docker::SealPlan;

use super::Context;
use super::error::{CliError, Exit};
use super::overrides::configuration;
use super::select::{Which, select};

/// Ask what a sandbox may reach, and what it wanted to
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say whether a host may be reached, and by which line; exits with 1 when it may not
    Check(CheckArgs),
    /// Print how a sandbox's network would be sealed: routes, firewall rules and listeners
    Rules,
    /// Print the allowlist that a run would have needed
    Suggest {
        /// The run; the newest one by default
        #[arg(long, value_name = "RUN")]
        from: Option<RunId>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// A host, at port 443 unless another one is given
    #[arg(value_name = "HOST[:PORT]", value_parser = parse_target)]
    target: (RequestHost, u16),
    /// The method of a request that can be seen, for lines that name methods
    #[arg(long, requires = "path")]
    method: Option<String>,
    /// The path of a request that can be seen, for lines that name paths
    #[arg(long, requires = "method")]
    path: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn network(context: &Context, args: Args) -> Result<Exit, CliError> {
    match args.what {
        What::Check(args) => check(context, args).await,
        What::Rules => rules(context).await,
        What::Suggest { from, json } => suggest(context, from.as_ref(), json),
    }
}

/// Where HTTP is within TLS.
const TLS_PORT: u16 = 443;

/// What `check` prints.
#[derive(Serialize)]
struct Checked {
    host: String,
    port: u16,
    verdict: Outcome,
    /// Whether its TLS is opened.
    inspected: bool,
    /// The line that allows it, or why it is denied.
    reason: String,
    /// What that line says; none where no line decides.
    line: Option<String>,
    /// Where it stands: a file, and before it the preset and the client's own file that it comes from.
    place: Option<String>,
}

async fn check(context: &Context, args: CheckArgs) -> Result<Exit, CliError> {
    let policy = policy(context).await?;
    let (host, port) = args.target;
    let inspected = host.name().is_some_and(|name| policy.inspects(name, port));
    let content = match args.method.zip(args.path) {
        // Only there the gateway can see them.
        Some((method, path)) if inspected || port != TLS_PORT => RequestContent::Http { method, path },
        _ => RequestContent::Opaque,
    };
    let request = PolicyRequest { host, port, content };
    let judged = policy.judge(&request);
    let (verdict, reason) = match &judged {
        PolicyVerdict::Allowed(line) => (Outcome::Allowed, format!("by {line}")),
        PolicyVerdict::Denied(Denial::NotInspected(line)) if inspected => (
            Outcome::Denied,
            format!("{line} decides by the request: ask with --method and --path"),
        ),
        PolicyVerdict::Denied(denial) => (Outcome::Denied, denial.to_string()),
    };
    let line = match &judged {
        PolicyVerdict::Allowed(line) => Some(line),
        PolicyVerdict::Denied(denial) => denial.line(),
    };
    let checked = Checked {
        host: request.host.to_string(),
        port,
        verdict,
        inspected,
        reason,
        line: line.map(|line| line.text().to_owned()),
        place: line.and_then(|line| line.place().map(str::to_owned)),
    };
    if args.json {
        context.ui.json(&checked)?;
    } else {
        let Checked { host, reason, .. } = &checked;
        let opened = if inspected { " (inspected)" } else { "" };
        context
            .ui
            .data(format_args!("{verdict}: {host}:{port}{opened}: {reason}"))?;
    }
    Ok(match verdict {
        Outcome::Allowed => Exit::Success,
        Outcome::Denied => Exit::Failure,
    })
}

async fn rules(context: &Context) -> Result<Exit, CliError> {
    let policy = policy(context).await?;
    let plan = SealPlan::of(&policy).map_err(SandboxError::from)?;
    match plan {
        Some(plan) => context.ui.data(plan.to_string().trim_end())?,
        None => context
            .ui
            .say("Nothing is sealed: the policy allows everything and denies nothing."),
    }
    Ok(Exit::Success)
}

/// The policy of a run that would begin here and now, as far as that is known without building its image.
async fn policy(context: &Context) -> Result<Policy, CliError> {
    let config = configuration(context, None, Vec::new())?;
    let project = project_dir(&context.surroundings().cwd);
    let image = if clients::asks_image(&config) {
        let found = image::at_hand(&context.assembly, &config, &project).await;
        let missing = match &found {
            Ok(Some(_)) => None,
            Ok(None) => Some("it is not there yet".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = missing {
            context.ui.say(format_args!(
                "The configuration of package clients in the image is not known: {reason}."
            ));
        }
        found.ok().flatten()
    } else {
        None
    };
    Ok(spec::network_policy(&context.assembly, &config, Some(&project), image.as_deref()).await?)
}

/// What `suggest` prints as JSON.
#[derive(Serialize)]
struct Suggested {
    reached: Vec<Asked>,
    blocked: Vec<Asked>,
}

fn suggest(context: &Context, run: Option<&RunId>, json: bool) -> Result<Exit, CliError> {
    let run = select(&context.surroundings().runs()?, run, Which::Any)?;
    let records = AuditLog::read(&run.network_file())?;
    if records.is_empty() {
        let id = &run.facts().id;
        return Err(
            CliError::runtime(format!("nothing is written down of what run `{id}` reached"))
                .hint("only sandboxes behind the gateway are watched; `local` is not"),
        );
    }
    let tally: Tally = records.iter().collect();
    let suggested = Suggested {
        reached: tally.reached().collect(),
        blocked: tally.blocked().collect(),
    };
    if json {
        context.ui.json(&suggested)?;
    } else {
        context.ui.data(as_toml(&suggested).trim_end())?;
    }
    Ok(Exit::Success)
}

/// An allowlist of what was reached. What was blocked is left for a person to decide.
fn as_toml(suggested: &Suggested) -> String {
    let mut known = BTreeSet::new();
    let (mut allowed, mut besides) = (Vec::new(), Vec::new());
    for asked in suggested.reached.iter().chain(&suggested.blocked) {
        let (verdict, count) = (asked.verdict, asked.count);
        match (verdict, asked.suggestion()) {
            (_, Some(line)) if !known.insert(line.clone()) => {}
            (Outcome::Allowed, Some(line)) => allowed.push(format!("  \"{line}\", # reached {count}x\n")),
            (Outcome::Denied, Some(line)) => allowed.push(format!("  # \"{line}\", # blocked {count}x\n")),
            (_, None) => besides.push(format!("# {asked}\n")),
        }
    }
    let (allowed, besides) = (allowed.concat(), besides.concat());
    format!("[sandbox.network]\npolicy = \"allowlist\"\nallowed = [\n{allowed}]\n{besides}")
}

fn parse_target(text: &str) -> Result<(RequestHost, u16), TargetError> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| TargetError::Port)?),
        _ => (text, 443),
    };
    let host = RequestHost::parse(host).map_err(TargetError::Host)?;
    Ok((host, port))
}

#[derive(Debug, thiserror::Error)]
enum TargetError {
    #[error(transparent)]
    Host(HostNameError),
    #[error("the port is a number from 1 to 65535")]
    Port,
}
