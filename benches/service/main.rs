//! What the service costs: claims from a long queue, and the time until a worker starts. `benches/run service` runs it.
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
mod queue;
mod wake;

use std::error::Error;

use support::postgres::PostgresServer;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Measures everything, or what the arguments name.
fn main() -> Fallible<()> {
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    if let Ok(load) = std::fs::read_to_string("/proc/loadavg") {
        println!("load of the host before: {}", load.trim());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Commits are synced, as those of a real server are.
        let server = PostgresServer::start(&["max_connections=300"])?;
        let mut figures = Vec::new();
        if wanted("claims") {
            figures.push(claims::sqlite().await?);
            figures.push(claims::postgres(&server).await?);
        }
        if wanted("wake") {
            figures.push(wake::measure(&server).await?);
        }
        for figure in figures {
            println!("{figure}");
        }
        Ok(())
    })
}
