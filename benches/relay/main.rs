//! What it costs that connections are relayed over a stream of the engine, in place of sockets that are handed over: bytes in
//! both directions, requests, and the first command in a new sandbox.
//! `benches/run relay` runs it.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(missing_docs, reason = "nothing here is called by others")]

mod client;
#[path = "../loop/figure.rs"]
#[allow(dead_code, reason = "the loop needs more of it")]
mod figure;
mod first;
mod origin;
mod requests;
mod sealed;
#[path = "../exec/stage.rs"]
#[allow(dead_code, reason = "the commands need more of it")]
mod stage;
mod transfer;

use std::error::Error;

use figure::results::{Results, Tool};
use stage::Stage;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Fallible<()> {
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    if let [role, rest @ ..] = named.as_slice()
        && role == client::ROLE
    {
        return client::run(rest);
    }
    // Two threads, as the command line has.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stage = Stage::with_files(&client::files()?).await?;
        let measured = measure(&stage, &named).await;
        stage.tear_down().await?;
        measured
    })
}

/// Measures everything, or what the arguments name.
async fn measure(stage: &Stage, named: &[String]) -> Fallible<()> {
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    let mut results = Results::begin("relay", &[Tool::docker()]);
    if wanted("transfer") {
        results.report(transfer::measure(stage).await?)?;
    }
    if wanted("requests") {
        results.report(requests::measure(stage).await?)?;
    }
    if wanted("first") {
        results.report(first::measure(stage).await?)?;
    }
    Ok(())
}
