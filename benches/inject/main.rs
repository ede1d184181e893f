//! What the gateway adds to a call: time to the first byte, calls per second beside LiteLLM's, memory of many streams; and
//! how long an agent takes to its first call. `benches/run inject` runs it.
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs this")]
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
        if let Ok(load) = std::fs::read_to_string("/proc/loadavg") {
            println!("load of the machine before: {}", load.trim());
        }
        if wanted("first-request") {
            for figure in first_request::measure().await? {
                println!("{figure}");
            }
        }
        if named == ["first-request"] {
            return Ok(());
        }
        let stage = Stage::set_up().await?;
        if wanted("first-byte") {
            println!("{}", first_byte::measure(&stage).await?);
        }
        if wanted("held") {
            println!("{}", held::measure(&stage).await?);
        }
        if wanted("throughput") {
            println!("{}", throughput::measure(&stage).await?);
        }
        Ok(())
    })
}
