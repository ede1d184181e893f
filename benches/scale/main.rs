//! How costs grow: with iterations, files, the size of the context, runs at once, events, sandboxes and logs; and a simulation of
//! workers over the real queue and store. `benches/run scale` runs it; docs/scale.md shows the results.
#![expect(clippy::print_stdout, reason = "the figures are the output")]
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    reason = "nothing here is called by others"
)]

mod at_once;
mod context;
#[path = "../exec/stage.rs"]
#[allow(dead_code, reason = "exec needs more of it")]
mod engine_stage;
#[path = "../loop/figure.rs"]
#[allow(dead_code, reason = "the loop needs more of it")]
mod figure;
mod files;
mod fill;
mod iterations;
mod laps;
mod logs;
#[path = "../service/many_runs.rs"]
#[allow(dead_code, reason = "the service needs more of it")]
mod many_runs;
#[path = "../service/queue.rs"]
#[allow(dead_code, reason = "the service needs more of it")]
mod queue;
mod run_dirs;
mod sandboxes;
mod simulation;
#[path = "../loop/stage.rs"]
#[allow(dead_code, reason = "the loop needs more of it")]
mod stage;
mod store;

use std::error::Error;

use figure::results::{Results, Tool};
use stage::Stage;
use support::postgres::PostgresServer;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure())
}

/// Measures everything, or what the arguments name.
async fn measure() -> Fallible<()> {
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    // Those of Debian are not on the PATH.
    let postgres = "PATH=$PATH:$(echo /usr/lib/postgresql/*/bin | tr ' ' ':') postgres --version";
    let tools = [
        Tool::named("git"),
        Tool::by("postgres", ["sh", "-c", postgres]),
        Tool::docker(),
    ];
    let mut results = Results::begin("scale", &tools);
    let stage = Stage::set_up()?;
    // First, because it reads how large this very process is.
    if wanted("at-once") {
        results.report_curves(at_once::measure(&stage).await?)?;
    }
    if wanted("iterations") {
        results.report_curves(iterations::measure(&stage).await?)?;
    }
    if wanted("context") {
        results.report_curves(context::measure(&stage).await?)?;
    }
    if wanted("files") {
        results.report_curves(files::measure(&stage).await?)?;
    }
    if wanted("run-directories") {
        results.report_curves(run_dirs::measure()?)?;
    }
    if wanted("logs") {
        results.report_curves(logs::measure().await?)?;
    }
    if wanted("sandboxes") {
        match engine_stage::Stage::set_up().await {
            Ok(engine) => {
                let measured = sandboxes::measure(&engine).await;
                engine.tear_down().await?;
                results.report_curves(measured?)?;
            }
            Err(error) => println!("skipped: sandboxes: {error}"),
        }
    }
    if wanted("store") || wanted("simulation") {
        // Commits are synced, as those of a real server are.
        let server = PostgresServer::start(&["max_connections=300"])?;
        if wanted("store") {
            results.report_curves(store::measure(&server).await?)?;
        }
        if wanted("simulation") {
            results.report_curves(simulation::measure(&server).await?)?;
        }
    }
    Ok(())
}
