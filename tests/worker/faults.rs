//! Workers that are ended, killed and suspended. Each has a `RALPH_HOME` of its own, as on a host of its own.

use std::time::Instant;

use ralph::RunId;
use ralph::store::{EventPosition, QueueState};
use serde_json::Value;

use crate::desk::{Desk, LEASE, host_label};
use crate::need;
use crate::support::ralph::{Live, commit, doing, ending, eventually, run, script, write};

/// A run whose first iteration takes long unless the file `go` is there.
fn slow(desk: &Desk) -> Value {
    let wait = format!(
        "while ! [ -e {}/go ]; do sleep 0.1; done",
        desk.place.path().display()
    );
    script([
        doing([write("a.txt", "hello\n"), commit("Add a.txt"), run(&wait)]),
        ending([write("b.txt", "hello\n"), commit("Add b.txt")]),
    ])
}

fn let_go(desk: &Desk) {
    std::fs::write(desk.place.path().join("go"), "").unwrap();
}

/// Waits until the worker's agent waits in its first iteration.
fn wait_for_action(desk: &Desk, host: &str, run: &str) {
    let events = desk.home(host).join("runs").join(run).join("events.jsonl");
    eventually("the agent works", || {
        let text = std::fs::read_to_string(&events).unwrap_or_default();
        text.lines()
            .any(|line| line.contains("action_started") && line.contains("while"))
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_terminated_gives_its_run_back() {
    let desk = Desk::sqlite();
    let run = desk.submit(&slow(&desk), &[]);
    let worker = Live::start(&mut desk.worker("user", &[]));
    wait_for_action(&desk, "user", &run);
    worker.signal("TERM");
    let ended = worker.wait();
    ended.expect(0, &["back in the queue"]);
    let row = desk.row(&run).await;
    assert_eq!((row.state, row.attempts), (QueueState::Queued, 0));
    // The iteration was ended with what it had, and nothing is left running.
    assert_eq!(desk.recorded(&run), [1]);
    assert_eq!(desk.processes(), [""; 0]);
    desk.work("user", &["--once"]).expect(0, &["done"]);
    assert_eq!(desk.recorded(&run), [1, 2]);
    assert_eq!(desk.subjects(&run), ["Add b.txt", "Add a.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_worker_at_once() {
    let desk = Desk::sqlite();
    // The tests of the task would go on for ever, and the iteration with them.
    desk.place.write("test.sh", "while true; do sleep 0.1; done\n");
    desk.place.commit("Slow tests");
    let run = desk.submit(&slow(&desk), &[]);
    let worker = Live::start(&mut desk.worker("user", &[]));
    wait_for_action(&desk, "user", &run);
    worker.signal("INT");
    eventually("the tests of the task run", || {
        desk.processes().iter().any(|line| line.contains("test.sh"))
    });
    worker.signal("INT");
    worker.wait().expect(0, &["Ending at once.", "back in the queue"]);
    let row = desk.row(&run).await;
    assert_eq!((row.state, row.attempts), (QueueState::Queued, 0));
    assert_eq!(desk.recorded(&run), [0; 0]);
    assert_eq!(desk.processes(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_of_a_killed_worker_goes_on_elsewhere() {
    let desk = need!(Desk::postgres().await);
    let run = desk.submit(&slow(&desk), &["--label", &host_label()]);
    let first = Live::start(&mut desk.worker("first", &[]));
    wait_for_action(&desk, "first", &run);
    first.signal("KILL");
    let killed = Instant::now();
    let_go(&desk);
    let second = Live::start(&mut desk.worker("second", &[]));
    desk.wait_until_finished(&run).await;
    let took = killed.elapsed();
    println!("a dead worker's run was done after {took:?} with a lease of {LEASE:?}");
    second.signal("TERM");
    assert_eq!(second.wait().code, Some(0));
    let row = desk.row(&run).await;
    assert_eq!((row.outcome.as_deref(), row.epoch), (Some("done"), 2));
    assert_eq!(desk.recorded(&run), [1, 2]);
    assert_eq!(desk.subjects(&run), ["Add b.txt", "Add a.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_suspended_writes_nothing_any_more() {
    let desk = need!(Desk::postgres().await);
    let run = desk.submit(&slow(&desk), &["--label", &host_label()]);
    let zombie = Live::start(&mut desk.worker("first", &["--once"]));
    wait_for_action(&desk, "first", &run);
    zombie.signal("STOP");
    let_go(&desk);
    let second = Live::start(&mut desk.worker("second", &["--drain"]));
    // It ends at once while the lease lasts: there is no run for it.
    second.wait();
    std::thread::sleep(LEASE * 2);
    let ended = desk.work("second", &["--drain"]);
    ended.expect(0, &["done"]);
    let before = (desk.refs(), desk.row(&run).await);
    assert_eq!(before.1.outcome.as_deref(), Some("done"));
    zombie.signal("CONT");
    let ended = zombie.wait();
    ended.expect(0, &["the lease is lost"]);
    assert_eq!((desk.refs(), desk.row(&run).await), before);
    assert_eq!(desk.processes(), [""; 0], "its sandbox is stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_on_another_host_reaches_the_run_and_its_events_come_back() {
    let desk = need!(Desk::postgres().await);
    let run = desk.submit(&slow(&desk), &["--label", &host_label()]);
    let worker = Live::start(&mut desk.worker("first", &["--once"]));
    wait_for_action(&desk, "first", &run);
    desk.run(&["note", &run, "blue, please"])
        .expect(0, &["Left for run", "note: blue, please"]);
    desk.run(&["stop", &run]).expect(0, &["Left for run", "stop"]);
    worker.wait().expect(0, &["stopped"]);
    let row = desk.row(&run).await;
    assert_eq!(row.outcome.as_deref(), Some("stopped"));
    let run = RunId::parse(&run).unwrap();
    let store = desk.store().await;
    assert_eq!(store.waiting_interventions(&run).await.unwrap(), []);
    let mirrored = store
        .events(&run, EventPosition::default(), 10_000)
        .await
        .unwrap();
    let file = desk
        .home("first")
        .join("runs")
        .join(run.as_str())
        .join("events.jsonl");
    let written = std::fs::read_to_string(file).unwrap();
    let texts: Vec<&str> = mirrored.iter().map(|(_, event)| event.as_str()).collect();
    assert_eq!(texts, written.lines().collect::<Vec<_>>());
    let last = mirrored[mirrored.len() - 2].0;
    let after = store.events(&run, last, 10_000).await.unwrap();
    assert_eq!(after, mirrored[mirrored.len() - 1..]);
}
