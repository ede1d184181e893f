//! A command that prints without end neither fills memory nor stalls the run.

use std::fs;
use std::time::Instant;

use rstest::rstest;
use serde_json::Value;

use crate::support::ralph::{Live, Place, doing, run, script, whole_task};

/// The most memory ralph may hold, in kB.
const MOST_KB: u64 = 100_000;

#[rstest]
#[case::one_line("head -c 1G /dev/zero | tr '\\0' x")]
#[case::many_lines("yes 'a line of some length, as a compiler prints' | head -c 1G")]
fn a_gigabyte_of_output_is_survived(#[case] command: &str) {
    let place = Place::new();
    let started = Instant::now();
    let script = script([doing([run(command)]), whole_task()]);
    let mut live = Live::start(&mut place.scripted(&script, &["--verbose"]));
    let mut peak = 0;
    while live.is_running() {
        peak = peak.max(peak_kb(live.pid()).unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    live.wait().expect(0, &["iteration 2", "done: "]);
    assert!(started.elapsed().as_secs() < 120, "{:?}", started.elapsed());
    assert!(0 < peak && peak < MOST_KB, "{peak} kB");
    let first = place.noted("iterations/1/actions.jsonl");
    let action: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert_eq!(action["ok"], true);
    assert!(first.len() < 20_000, "{}", first.len());
    let log = fs::metadata(place.run_dir().join("events.jsonl")).unwrap().len();
    assert!(log < 20_000_000, "{log}");
}

/// The most memory that a process has held so far.
fn peak_kb(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
