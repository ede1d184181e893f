//! `ralph dashboard`

use super::serve::{ServeArgs, ServiceFront, serve};
use super::{CliResult, Context};

/// Serve the dashboard: watch runs in a browser and steer them
///
/// It is `ralph serve` with pages. The link that it prints logs a browser in, once.
#[derive(Debug, clap::Args)]
pub(super) struct DashboardArgs {
    #[command(flatten)]
    serve: ServeArgs,
    /// Only print the link, and start no browser
    #[arg(long)]
    no_open: bool,
}

pub(super) async fn dashboard(context: &Context, args: DashboardArgs) -> CliResult {
    let opens = !args.no_open;
    serve(context, args.serve, ServiceFront::Dashboard { opens }).await
}
