//! What the service costs: claims from a long queue, the time until a worker starts, lists of many runs and sockets. `benches/run service` runs it.
#![expect(clippy::print_stdout, reason = "the figures are the output")]
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    reason = "nothing here is called by others, and the peer is a program"
)]

mod claims;
#[path = "../loop/figure.rs"]
#[allow(dead_code, reason = "the loop needs more of it")]
mod figure;
mod lists;
mod many_runs;
mod queue;
mod sockets;
mod wake;

use std::error::Error;

use figure::results::{Results, Tool};
use support::postgres::PostgresServer;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Measures everything, or what the arguments name.
fn main() -> Fallible<()> {
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    if named.iter().any(|one| one == sockets::PLAIN) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        return runtime.block_on(sockets::serve_plain());
    }
    allow_sockets()?;
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    let mut results = Results::begin("service", &[Tool::at("postgres", &claims::program("postgres")?)]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Commits are synced, as those of a real server are.
        let server = PostgresServer::start(&["max_connections=300"])?;
        if wanted("claims") {
            results.report([claims::sqlite().await?])?;
            results.report([claims::postgres(&server).await?])?;
        }
        if wanted("wake") {
            results.report([wake::measure(&server).await?])?;
        }
        if wanted("lists") || wanted("sockets") {
            let service = many_runs::ManyRuns::start()?;
            results.report(lists::measure(&service).await?)?;
            results.report(sockets::measure(&service).await?)?;
        }
        Ok(())
    })
}

/// Lets this process have a socket for each client.
fn allow_sockets() -> Fallible<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let files = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: files.maximum,
        ..files
    };
    Ok(setrlimit(Resource::Nofile, most)?)
}
