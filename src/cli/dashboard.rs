//! `ralph dashboard`

use std::path::PathBuf;

use clap::Subcommand;

use crate::assembly::provider::daytona_provider;
use crate::sandbox::daytona::DaytonaHostPlan;

use super::overrides::quiet_configuration;
use super::serve::{ServeArgs, ServiceFront, serve};
use super::{CliError, CliExit, CliResult, Context, ErrorTopic};

/// Serve the dashboard: watch runs in a browser and steer them
///
/// It is `ralph serve` with pages. The link that it prints logs a browser in, once.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct DashboardArgs {
    #[command(subcommand)]
    command: Option<DashboardCommand>,
    #[command(flatten)]
    serve: ServeArgs,
    /// Only print the link, and start no browser
    #[arg(long)]
    no_open: bool,
}

#[derive(Debug, Subcommand)]
enum DashboardCommand {
    /// Start a dashboard elsewhere, in a sandbox of its own that runs no agent
    ///
    /// It prints the preview link, and a link that logs a browser in. A second deploy replaces the program and starts it again; the
    /// runs there stay.
    Deploy(DeployArgs),
}

#[derive(Debug, clap::Args)]
struct DeployArgs {
    /// Where: at Daytona
    #[arg(long = "type", value_name = "TYPE")]
    place: DeployPlace,
    /// Store your API key there, so that the dashboard starts sandboxes; who can use that sandbox can read it
    #[arg(long)]
    give_key: bool,
    /// The port of the dashboard in its sandbox
    #[arg(long, value_name = "PORT", default_value_t = 8000, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The program to start there, in place of this one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Remove that sandbox with its runs, and start nothing
    #[arg(long, conflicts_with_all = ["give_key", "port", "program"])]
    remove: bool,
}

/// Where a dashboard can be deployed.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum DeployPlace {
    Daytona,
}

pub(super) async fn dashboard(context: &Context, args: DashboardArgs) -> CliResult {
    match args.command {
        Some(DashboardCommand::Deploy(args)) => deploy(context, args).await,
        None => {
            let opens = !args.no_open;
            serve(context, args.serve, ServiceFront::Dashboard { opens }).await
        }
    }
}

async fn deploy(context: &Context, args: DeployArgs) -> CliResult {
    let DeployPlace::Daytona = args.place;
    let config = quiet_configuration(context, Vec::new())?;
    let provider = daytona_provider(&context.assembly, &config)?;
    if args.remove {
        let said = if provider.remove_host().await? {
            "Removed the dashboard at Daytona."
        } else {
            "There is no dashboard of this host at Daytona."
        };
        context.ui.say(said);
        return Ok(CliExit::Success);
    }
    let program = match args.program {
        Some(program) => program,
        None => own_program()?,
    };
    let plan = DaytonaHostPlan {
        program,
        port: args.port,
        gives_key: args.give_key,
    };
    let host = provider.deploy_host(&plan).await?;
    let done = if host.is_new { "Started" } else { "Started again" };
    context.ui.say(format_args!(
        "{done}: the dashboard in the sandbox `{}`. It runs until `ralph dashboard deploy --type daytona --remove`.",
        host.sandbox
    ));
    context.ui.say(if args.give_key {
        "Your API key of Daytona is stored in that sandbox: the dashboard starts sandboxes with it."
    } else {
        "It has no API key of Daytona, so it shows runs and starts none; --give-key gives it yours."
    });
    context
        .ui
        .data(format!("{}/login?secret={}", host.url, host.login.expose()))?;
    context.ui.say(format_args!(
        "Open this link, within 15 minutes and once. Programs send `x-daytona-preview-token: {}`.",
        host.preview_token.expose()
    ));
    Ok(CliExit::Success)
}

/// The program of this process, which must be one for Linux to run there.
fn own_program() -> Result<PathBuf, CliError> {
    if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
        return Err(
            CliError::usage("this program does not run at Daytona, which has Linux on x86-64")
                .with_topic(ErrorTopic::Service)
                .with_hint("name one for Linux with --program, such as that of a release"),
        );
    }
    std::env::current_exe().map_err(|error| {
        CliError::runtime(format!("cannot find this program: {error}")).with_topic(ErrorTopic::Service)
    })
}
