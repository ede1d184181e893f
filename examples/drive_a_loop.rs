//! Drives a whole loop from Rust: from a task to a pull request.
//!
//! ```text
//! cargo run --example drive_a_loop
//! ```
//!
//! The model is scripted, so it needs no account: its first fix is wrong, the evidence says so, its second is right.
//! Everything else is real.
#![expect(clippy::print_stdout, reason = "a program talks to its user")]

mod support;

use std::error::Error;

use ralph::state::RunOutcomeKind;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let example = support::Example::new().await?;
    let run = example.builder().build().await?.start().await?;
    let outcome = run.drive().await?;

    println!("{:?}: {}", outcome.kind, outcome.reason);
    println!(
        "{} iterations, {} tokens, branch {}",
        outcome.used.iterations,
        outcome.used.tokens.total(),
        outcome.branch
    );
    for line in run.dir().journal()? {
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
    println!("\n{}", std::fs::read_to_string(run.dir().pull_request_file())?);
    Ok(())
}
