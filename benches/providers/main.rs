//! What providers cost whose sandboxes are VMs or in a cloud, measured on fakes of them.
//! `benches/run providers` runs it.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(missing_docs, reason = "nothing here is called by others")]

mod calls;
mod crowd;
#[path = "../loop/figure.rs"]
#[allow(dead_code, reason = "the loop needs more of it")]
mod figure;
mod serve;
mod warm;

use std::error::Error;

use figure::results::{Results, Tool};
use serve::Served;

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
    if named.iter().any(|name| name == serve::ROLE) {
        return runtime.block_on(serve::serve());
    }
    runtime.block_on(measure(&named))
}

/// Measures everything, or what the arguments name.
async fn measure(named: &[String]) -> Fallible<()> {
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    let mut results = Results::begin("providers", &[Tool::docker()]);
    // First, since a process has one greatest size.
    if wanted("crowd") {
        let daytona = Served::start().await?;
        results.report(crowd::measure(&daytona).await?)?;
    }
    if wanted("calls") {
        let daytona = Served::start().await?;
        results.report(calls::measure(&daytona).await?)?;
    }
    if wanted("warm") {
        results.report(warm::measure().await?)?;
    }
    Ok(())
}
