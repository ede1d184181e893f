//! An event sink of your own: it prints one line per iteration and adds up numbers.
//!
//! ```text
//! cargo run --example custom_sink
//! ```
//!
//! A run reports everything as events. The terminal, the log and `ralph run --json` are sinks like this one. Secrets are
//! removed before a sink gets an event.
#![expect(clippy::print_stdout, reason = "a program talks to its user")]

mod support;

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use ralph::{Event, EventKind, EventSink};

/// What a dashboard would show.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    iterations: u32,
    tokens: u64,
    checks: u32,
    failed_checks: u32,
    ticks: u32,
}

#[derive(Default)]
struct Metrics(Mutex<Numbers>);

impl EventSink for Metrics {
    /// Called in order, by the run itself: take what is needed and return.
    fn emit(&self, event: &Event) {
        let mut numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &event.kind {
            EventKind::ModelAnswered { tokens, .. } => numbers.tokens += tokens.unwrap_or(0),
            EventKind::Checked { passed, .. } => {
                numbers.checks += 1;
                numbers.failed_checks += u32::from(!passed);
            }
            EventKind::Ticked { .. } => numbers.ticks += 1,
            EventKind::IterationEnded { summary, .. } => {
                numbers.iterations += 1;
                println!("{} #{} {summary}", event.run, numbers.iterations);
            }
            _ => {}
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let example = support::Example::new().await?;
    let metrics = Arc::new(Metrics::default());
    let ralph = example.builder().sink(metrics.clone()).build().await?;
    let outcome = ralph.run().await?;

    let numbers = *metrics.0.lock().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{:?}: {} iterations, {} tokens, {} of {} checks failed, {} boxes ticked",
        outcome.kind,
        numbers.iterations,
        numbers.tokens,
        numbers.failed_checks,
        numbers.checks,
        numbers.ticks
    );
    Ok(())
}
