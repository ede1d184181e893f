//! What the gateway adds to a call: time to the first byte, calls per second beside LiteLLM's, memory of many streams; and
//! how long an agent takes to its first call. `benches/run inject` runs it.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(missing_docs, reason = "nothing here is called by others")]

mod client;
#[path = "../loop/figure.rs"]
#[allow(dead_code, reason = "the loop needs more of it")]
mod figure;
mod first_byte;
mod first_request;
mod held;
mod stage;
extern crate support;
mod throughput;
mod upstream;

use std::error::Error;
use std::path::PathBuf;

use figure::results::{Results, Tool};
use stage::Stage;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Fallible<()> {
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut results = Results::begin("inject", &tools());
        if wanted("first-request") {
            results.report(first_request::measure().await?)?;
        }
        if named == ["first-request"] {
            return Ok(());
        }
        let stage = Stage::set_up().await?;
        if wanted("first-byte") {
            results.report([first_byte::measure(&stage).await?])?;
        }
        if wanted("held") {
            results.report([held::measure(&stage).await?])?;
        }
        if wanted("throughput") {
            results.report([throughput::measure(&stage).await?])?;
        }
        Ok(())
    })
}

/// The engine, and what benches/inject/run has installed.
fn tools() -> Vec<Tool> {
    #[expect(clippy::disallowed_methods, reason = "benches/inject/run says where they are")]
    let installed = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut tools = vec![Tool::docker()];
    tools.extend(installed("RALPH_TEST_LITELLM").map(|program| Tool::at("LiteLLM", &program)));
    if let Some(folder) = installed("RALPH_TEST_AGENTS") {
        tools.extend(["claude", "codex", "opencode"].map(|name| Tool::at(name, &folder.join(name))));
    }
    tools
}
