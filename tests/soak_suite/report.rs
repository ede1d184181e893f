//! What is printed: a line for each round, and a report at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fault::Fault;
use crate::footprint::Footprint;
use crate::rounds::{Played, Round};

/// What was seen so far.
#[derive(Default)]
pub struct Report {
    rounds: u64,
    last_round: u64,
    runs: usize,
    /// Rounds, and how often the fault struck in them.
    faults: BTreeMap<Fault, (u32, u32)>,
    violation: Option<String>,
    footprints: Vec<(String, Vec<Footprint>)>,
}

impl Report {
    /// Adds a round and prints its line.
    pub fn add(&mut self, round: &Round, took: Duration, outcome: Result<Played, String>) {
        self.rounds += 1;
        self.last_round = round.number;
        let (runs, strikes, said) = match outcome {
            Ok(played) => (played.runs, played.strikes, "ok".to_owned()),
            Err(violation) => {
                self.violation = Some(violation);
                (0, 0, "VIOLATION".to_owned())
            }
        };
        self.runs += runs;
        let seen = self.faults.entry(round.fault).or_default();
        *seen = (seen.0 + 1, seen.1 + strikes);
        println!(
            "round {round}: {runs} runs, {strikes} strikes, {:.1} s: {said}",
            took.as_secs_f64()
        );
    }

    pub fn add_footprints(&mut self, footprints: Vec<(String, Vec<Footprint>)>) {
        self.footprints = footprints;
    }

    pub fn has_violation(&self) -> bool {
        self.violation.is_some()
    }

    /// The number of the last round.
    pub fn last_round(&self) -> u64 {
        self.last_round
    }

    pub fn print(&self, seed: u64) {
        println!("\nseed {seed}: {} rounds, {} runs", self.rounds, self.runs);
        for (fault, (rounds, strikes)) in &self.faults {
            println!(
                "{:>18} {rounds:>4} rounds {strikes:>4} strikes",
                format!("{fault:?}")
            );
        }
        for (name, history) in &self.footprints {
            if let (Some(first), Some(last)) = (history.first(), history.last()) {
                println!(
                    "{name}: memory {} kB, then {} kB; descriptors {}, then {}",
                    first.memory_kb, last.memory_kb, first.descriptors, last.descriptors
                );
            }
        }
        match &self.violation {
            Some(violation) => println!("VIOLATION in round {}: {violation}", self.last_round),
            None => println!("no violation"),
        }
    }
}
