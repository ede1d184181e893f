//! What images cost: hashing a build context, loading, and finding out that nothing must be done. `benches/run image`
//! runs it.
#![expect(clippy::print_stdout, reason = "the figures are the output")]
#![allow(missing_docs, reason = "nothing here is called by others")]

mod context;
#[path = "../loop/figure.rs"]
#[allow(dead_code, reason = "the loop needs more of it")]
mod figure;
mod flake;
mod load;
mod no_op;
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
    if let [context::ALONE, root] = named.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return context::hash_alone(root.as_ref());
    }
    // Two threads, as the command line has.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(measure(&named))
}

/// Measures everything, or what the arguments name.
async fn measure(named: &[String]) -> Fallible<()> {
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    let stage = Stage::set_up().await?;
    let mut results = Results::begin("image", &[Tool::docker(), Tool::named("git"), Tool::named("nix")]);
    if wanted("context") {
        results.report(context::measure(&stage).await?)?;
    }
    if wanted("reload") {
        results.report(load::reload(&stage).await?)?;
    }
    if wanted("flake-reload") {
        results.report(flake::reload(&stage).await?)?;
    }
    if wanted("first-load") {
        results.report(load::first_load(&stage).await?)?;
    }
    // Last, since it needs more than an engine: git, and nix for the flake.
    if wanted("no-op") {
        results.report(no_op::small(&stage).await?)?;
        results.report(no_op::large(&stage).await?)?;
    }
    if wanted("no-op-flake") {
        results.report(no_op::flake(&stage).await?)?;
    }
    Ok(())
}
