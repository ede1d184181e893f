//! Runs a whole loop in Docker with `claude`. The network is sealed, and the credential stays on the host.
//!
//! ```text
//! cargo run --no-default-features --example docker_claude -- path/to/repository
//! ```
#![expect(clippy::print_stdout, reason = "a program talks to its user")]

use ralph::{AssemblyError, Claude, Docker, Ralph};

#[tokio::main]
async fn main() -> Result<(), AssemblyError> {
    let outcome = Ralph::builder()
        .repository(std::env::args().nth(1).unwrap_or_default())
        .task_file("ralph_task.md")
        .sandbox(Docker::new().allow(["crates.io"]))
        .agent(Claude::new())
        .build()
        .await?
        .run()
        .await?;
    println!("{:?}: {}", outcome.kind, outcome.reason);
    Ok(())
}
