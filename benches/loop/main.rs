//! What the loop itself costs: time per iteration, start-up, memory. `benches/run loop` runs it.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(missing_docs, reason = "nothing here is called by others")]

mod concurrent;
#[allow(dead_code, reason = "other benchmarks need more of it")]
mod figure;
mod overhead;
mod program;
mod signature;
mod stage;
mod stopwatch;
mod young;

use std::error::Error;

use figure::quick;
use figure::results::{Results, Tool};
use stage::Stage;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Fallible<()> {
    // Two threads, as the command line has.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(measure())
}

/// Measures everything, or what the arguments name.
async fn measure() -> Fallible<()> {
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    let stage = Stage::set_up()?;
    let mut results = Results::begin("loop", &[Tool::named("git")]);
    // First, because it reads how large this very process ever was.
    if wanted("concurrent") {
        results.report(concurrent::measure(&stage).await?)?;
    }
    if wanted("start-up") {
        results.report(program::start_up(&stage).await?)?;
    }
    if wanted("signature") {
        results.report(signature::measure(&stage).await?)?;
    }
    let large = stage.repository("large", stage::LARGE).await?;
    if wanted("memory") {
        results.report(program::memory(&stage, &large).await?)?;
    }
    if wanted("iteration") {
        results.report(overhead::measure(&stage, &large).await?)?;
    }
    // It takes minutes to write that many files.
    if wanted("huge") && !quick::is_quick() {
        results.report(vec![overhead::measure_huge(&stage).await?])?;
    }
    Ok(())
}
