//! Random runs with random faults, for as long as `tests/soak` states. After each round a model of what must hold is checked.
//! `tests/crash`, `tests/worker` and `tests/docker` have one test for each single fault; here faults, providers, queues and moments
//! are combined by chance, and two long-living processes see all of them.
// Only Linux: processes are found in `/proc`, and the engine must share its kernel with the tests.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests read the environment and panic"
)]

#[allow(dead_code, reason = "this binary uses a part of it")]
#[path = "../docker/daemon.rs"]
mod daemon;
#[allow(dead_code, reason = "this binary uses a part of it")]
#[path = "../worker/desk.rs"]
mod desk;
mod fault;
mod footprint;
mod model;
mod queue;
mod report;
mod rounds;
mod single;
use ::support::{self};

use std::time::{Duration, Instant};

use crate::report::Report;
use crate::rounds::{Round, Soak};

/// How long the soak takes without `RALPH_SOAK_MINUTES`, in minutes.
const MINUTES: u64 = 2;

#[test]
fn runs_survive_random_faults() {
    let minutes = number("RALPH_SOAK_MINUTES").unwrap_or(MINUTES);
    let seed = number("RALPH_SOAK_SEED").unwrap_or_else(|| fastrand::u64(..));
    let only = number("RALPH_SOAK_ROUND");
    println!("soak of {minutes} minutes, seed {seed}");
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut soak = runtime.block_on(Soak::start());
    let mut report = Report::default();
    for number in only.unwrap_or(1).. {
        let round = Round::choose(seed, number, &soak);
        let started = Instant::now();
        let outcome = runtime.block_on(soak.play(&round));
        report.add(&round, started.elapsed(), outcome);
        if report.has_violation() || only.is_some() || Instant::now() >= end {
            break;
        }
    }
    report.add_footprints(soak.footprints());
    if report.has_violation() {
        soak.abandon();
    } else {
        soak.end();
    }
    report.print(seed);
    assert!(
        !report.has_violation(),
        "repeat it with `tests/soak --seed {seed} --round {}`",
        report.last_round()
    );
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}
