//! Ctrl-C, once and twice.

use std::time::{Duration, Instant};

use rstest::rstest;

use crate::ending::{Ending, UNDISTURBED};
use crate::world::{SCRIPT, SLOW_SCRIPT, World, stderr_text};

#[rstest]
#[case::ctrl_c("INT")]
#[case::terminate("TERM")]
fn one_signal_stops_cleanly_and_says_how_to_resume(#[case] signal: &str) {
    let world = World::new(SLOW_SCRIPT);
    let mut ralph = world.go_on();
    assert!(ralph.wait_for("action", 1), "{}", ralph.stderr());
    ralph.signal(signal);
    assert_eq!(ralph.finish().code(), Some(3), "{}", ralph.stderr());
    let resume = format!("`ralph resume {}`", world.run_id());
    assert!(ralph.stderr().contains(&resume), "{}", ralph.stderr());
    assert_eq!(world.processes(), [""; 0]);
    let status = world.ralph(&["status", "--json", &world.run_id()]);
    let rows: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(rows[0]["state"], "stopped");
}

/// However quickly the second one follows.
#[rstest]
#[case(0)]
#[case(1)]
#[case(5)]
#[case(40)]
fn two_signals_end_it_at_once_with_everything_it_started(#[case] milliseconds: u64) {
    let world = World::new(SLOW_SCRIPT);
    let mut ralph = world.go_on();
    assert!(ralph.wait_for("action", 1), "{}", ralph.stderr());
    let started = Instant::now();
    ralph.signal("INT");
    std::thread::sleep(Duration::from_millis(milliseconds));
    ralph.signal("TERM");
    assert_eq!(ralph.finish().code(), Some(3), "{}", ralph.stderr());
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(world.processes(), [""; 0]);
    assert!(ralph.stderr().contains("ralph resume"), "{}", ralph.stderr());
}

#[rstest]
#[case::once(&["INT"])]
#[case::twice(&["INT", "INT"])]
fn an_interrupted_run_goes_on_to_the_same_result(#[case] signals: &[&str]) {
    let world = World::new(SCRIPT);
    let mut ralph = world.go_on();
    assert!(ralph.wait_for("iteration_ended", 2), "{}", ralph.stderr());
    for name in signals {
        ralph.signal(name);
    }
    assert_eq!(ralph.finish().code(), Some(3), "{}", ralph.stderr());
    let output = world.resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_result_as(&UNDISTURBED.0);
}
