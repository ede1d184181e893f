//! What polling and many runs ask of GitHub, and what a look at many issues costs. `benches/run github` runs it.
#![expect(clippy::print_stdout, reason = "the figures are the output")]
#![allow(missing_docs, reason = "nothing here is called by others")]

#[path = "../loop/figure.rs"]
#[allow(dead_code, reason = "the loop needs more of it")]
mod figure;
mod idle;
mod stage;
mod tick;
mod writes;

use std::error::Error;
use std::thread;

use figure::results::{Results, Tool};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Measures everything, or what the arguments name. A quick measurement does not reach the limit of an hour.
fn main() -> Fallible<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let named: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| *one == name);
    let mut results = Results::begin(
        "github",
        &[Tool::named("curl"), Tool::named("jq"), Tool::named("git")],
    );
    // First and alone, since it is the only one that takes times.
    if wanted("tick") {
        results.report(tick::measure()?)?;
    }
    // Counts only, so each can be made beside the other.
    thread::scope(|scope| {
        let idle = wanted("idle").then(|| scope.spawn(idle::measure));
        let writes = wanted("writes").then(|| scope.spawn(writes::measure));
        for part in [idle, writes].into_iter().flatten() {
            let figures = part.join().map_err(|_| "a part of the benchmark panicked")?;
            results.report(figures?)?;
        }
        Ok(())
    })
}
