//! What a command in a container costs: its round trip, the way to the first one, that of evidence, and a gigabyte of output.
//! `benches/run exec` runs it.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(missing_docs, reason = "nothing here is called by others")]

mod evidence;
#[path = "../loop/figure.rs"]
#[allow(dead_code, reason = "the loop needs more of it")]
mod figure;
mod first;
mod flow;
mod round_trip;
mod stage;

use std::error::Error;

use figure::results::{Results, Tool};
use stage::Stage;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Fallible<()> {
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    // Two threads, as the command line has.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stage = Stage::set_up().await?;
        let measured = measure(&stage, &named).await;
        stage.tear_down().await?;
        measured
    })
}

/// Measures everything, or what the arguments name.
async fn measure(stage: &Stage, named: &[String]) -> Fallible<()> {
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    let mut results = Results::begin("exec", &[Tool::docker()]);
    if wanted("round-trip") {
        results.report(round_trip::measure(stage).await?)?;
    }
    if wanted("first") {
        results.report(first::measure(stage).await?)?;
    }
    if wanted("evidence") {
        results.report(evidence::measure(stage).await?)?;
    }
    if wanted("flow") {
        results.report(flow::measure(stage).await?)?;
    }
    Ok(())
}
