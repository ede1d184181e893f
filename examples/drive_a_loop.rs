//! Drives a whole loop from Rust: a task goes in, a pull request comes out.
//!
//! ```text
//! cargo run --example drive_a_loop
//! ```
//!
//! The model is scripted, so it needs no account: its first fix is wrong, the evidence says so, its second is right.
//! Everything else is real. `support/mod.rs` shows how the parts are put together.
#![expect(clippy::print_stdout, reason = "a program talks to its user")]

mod support;

use std::error::Error;

use ralph::state::RunOutcomeKind;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let bench = support::Bench::new().await?;
    let outcome = bench.drive().await?;

    println!("{:?}: {}", outcome.kind, outcome.reason);
    println!(
        "{} iterations, {} tokens, branch {}",
        outcome.iterations,
        outcome.tokens.total(),
        outcome.branch
    );
    for line in bench.run.journal()? {
        if let ralph::state::JournalEntry::Recorded(record) = line.entry {
            println!(
                "iteration {}: {} [ticked: {}]",
                record.iteration,
                record.summary,
                record.ticked.join(", ")
            );
        }
    }
    if outcome.kind != RunOutcomeKind::Done {
        return Err(outcome.reason.into());
    }
    println!("\n{}", std::fs::read_to_string(bench.run.pull_request_file())?);
    Ok(())
}
