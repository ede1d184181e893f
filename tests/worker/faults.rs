//! Workers that are ended, killed and suspended. Each has a `RALPH_HOME` of its own, as on a host of its own.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use ralph::RunId;
use ralph::store::{EventPosition, QueueState};
use rstest::rstest;
use serde_json::Value;

use crate::desk::{Desk, LEASE, REPO, host_label};
use crate::need;
use crate::support::ralph::{
    Live, commit, doing, ending, eventually, finish, run, script, whole_task, write,
};

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

/// The events of a run on a host.
fn events_file(desk: &Desk, host: &str, run: &str) -> PathBuf {
    desk.home(host).join("runs").join(run).join("events.jsonl")
}

/// The events of a run in the store.
async fn mirrored(desk: &Desk, run: &str) -> Vec<(EventPosition, String)> {
    let (store, run) = (desk.store().await, RunId::parse(run).unwrap());
    let events = store.events(&run, EventPosition::default(), 10_000).await;
    store.close().await;
    events.unwrap()
}

/// Waits until the worker's agent waits in its first iteration.
fn wait_for_action(desk: &Desk, host: &str, run: &str) {
    let events = events_file(desk, host, run);
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
    assert!(
        !desk.sandbox("first", &run).exists(),
        "nothing would ever use it again"
    );
}

/// The worker lost its lease, or was killed, after the end was recorded and before the branch was released.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_end_was_cut_off_is_concluded_by_the_next_attempt() {
    let desk = Desk::sqlite();
    let run = desk.submit_short(&[]);
    desk.work("user", &["--once"]).expect(0, &["done"]);
    let refs = desk.refs();
    let reservation = format!("refs/ralph/branches/{}", desk.branch(&run).replace('/', "_"));
    desk.place.git(&["update-ref", &reservation, "main"]);
    desk.execute("UPDATE queue SET state = 'queued', attempts = 1, outcome = NULL, due_at = 0")
        .await;
    desk.work("user", &["--once"]).expect(0, &["done"]);
    let row = desk.row(&run).await;
    assert_eq!(
        (row.state, row.outcome.as_deref()),
        (QueueState::Finished, Some("done"))
    );
    assert_eq!(desk.recorded(&run), [1]);
    assert_eq!(desk.refs(), refs);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_on_another_host_reaches_the_run_and_its_events_come_back() {
    let desk = need!(Desk::postgres().await);
    let run = desk.submit(&slow(&desk), &["--label", &host_label()]);
    let worker = Live::start(&mut desk.worker("first", &["--once"]));
    wait_for_action(&desk, "first", &run);
    desk.run(&["note", &run, "blue, please"])
        .expect(0, &["Left for run", "note: blue, please"]);
    desk.run(&["rm", &run]).expect(
        1,
        &[
            "is being worked on by the worker `",
            &format!("hint: `ralph stop {run}`"),
        ],
    );
    desk.run(&["stop", &run]).expect(0, &["Left for run", "stop"]);
    worker.wait().expect(0, &["stopped"]);
    let row = desk.row(&run).await;
    assert_eq!(row.outcome.as_deref(), Some("stopped"));
    let waiting = "SELECT count(*) FROM interventions WHERE moved_at IS NULL";
    assert_eq!(desk.count(waiting).await, 0);
    let mirrored = mirrored(&desk, &run).await;
    let written = std::fs::read_to_string(events_file(&desk, "first", &run)).unwrap();
    let texts: Vec<&str> = mirrored.iter().map(|(_, event)| event.as_str()).collect();
    assert_eq!(texts, written.lines().collect::<Vec<_>>());
    let (store, run) = (desk.store().await, RunId::parse(&run).unwrap());
    let last = mirrored[mirrored.len() - 2].0;
    let after = store.events(&run, last, 10_000).await.unwrap();
    assert_eq!(after, mirrored[mirrored.len() - 1..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_killed_worker_are_mirrored_by_the_next_one_on_its_host() {
    let desk = need!(Desk::postgres().await);
    let run = desk.submit(&slow(&desk), &["--label", &host_label()]);
    let first = Live::start(&mut desk.worker("first", &[]));
    wait_for_action(&desk, "first", &run);
    first.signal("KILL");
    first.wait();
    let file = events_file(&desk, "first", &run);
    // One that the worker had no time for, and too long for one read.
    let long = format!("{{\"long\":\"{}\"}}\n", "x".repeat(3 << 20));
    let mut events = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
    events.write_all(long.as_bytes()).unwrap();
    let_go(&desk);
    let second = Live::start(&mut desk.worker("first", &[]));
    desk.wait_until_finished(&run).await;
    second.signal("TERM");
    assert_eq!(second.wait().code, Some(0));
    let written = std::fs::read_to_string(file).unwrap();
    let mirrored = mirrored(&desk, &run).await;
    let texts: Vec<&str> = mirrored.iter().map(|(_, event)| event.as_str()).collect();
    assert!(texts == written.lines().collect::<Vec<_>>(), "a gap, or a double");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_that_a_killed_worker_had_reaches_the_run_on_the_next_host() {
    let desk = need!(Desk::postgres().await);
    let run = desk.submit(&slow(&desk), &["--label", &host_label()]);
    let first = Live::start(&mut desk.worker("first", &[]));
    wait_for_action(&desk, "first", &run);
    desk.run(&["note", &run, "blue, please"])
        .expect(0, &["Left for run"]);
    let inbox = desk.home("first").join("runs").join(&run).join("control");
    eventually("the worker has the note", || {
        std::fs::read_dir(&inbox).is_ok_and(|mut entries| entries.next().is_some())
    });
    first.signal("KILL");
    first.wait();
    let_go(&desk);
    let second = Live::start(&mut desk.worker("second", &[]));
    desk.wait_until_finished(&run).await;
    second.signal("TERM");
    assert_eq!(second.wait().code, Some(0));
    let notes = desk
        .place
        .git(&["show", &format!("refs/ralph/{run}/state:ralph/notes.md")]);
    assert_eq!(notes.matches("blue, please").count(), 1, "{notes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_removes_a_run_from_the_index_whose_directory_is_gone() {
    let desk = Desk::sqlite();
    let run = desk.submit(&slow(&desk), &[]);
    let worker = Live::start(&mut desk.worker("user", &[]));
    wait_for_action(&desk, "user", &run);
    let store = desk.store().await;
    let states = async || {
        let runs = store.runs().await.unwrap().into_iter();
        runs.map(|run| run.state).collect::<Vec<_>>()
    };
    while states().await != ["running"] {
        tokio::time::sleep(LEASE / 30).await;
    }
    let dir = desk.home("user").join("runs").join(&run);
    std::fs::rename(dir, desk.place.path().join("gone")).unwrap();
    let removed = Instant::now();
    while !states().await.is_empty() {
        assert!(removed.elapsed() < 10 * LEASE, "{:?}", states().await);
        tokio::time::sleep(LEASE / 30).await;
    }
    worker.signal("KILL");
    worker.wait();
    store.close().await;
}

/// In the first case the queue does not know of it, as if `ralph rm` had been killed before. In the second one it still names the worker.
#[rstest]
#[case::behind_its_back(false)]
#[case::after_its_worker_was_killed(true)]
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_removed_does_not_stop_the_worker(#[case] is_begun: bool) {
    let desk = Desk::sqlite();
    let run = desk.submit(&slow(&desk), &[]);
    let mut remove = desk.ralph(&["rm", &run]);
    if is_begun {
        let worker = Live::start(&mut desk.worker("user", &[]));
        wait_for_action(&desk, "user", &run);
        worker.signal("KILL");
        worker.wait();
    } else {
        let other = desk.place.path().join("other.db");
        remove.env("RALPH_DB_URL", format!("sqlite://{}", other.display()));
    }
    finish(&mut remove).expect(0, &[&format!("Removed run {run}.")]);
    desk.execute("UPDATE queue SET due_at = 0").await;
    let other = desk.submit_short(&[]);
    desk.work("user", &["--drain"]).expect(
        0,
        &[
            &format!("run {run} was removed, so it leaves the queue"),
            &format!("run {other}: done"),
        ],
    );
    let row = desk.row(&run).await;
    assert_eq!(
        (row.state, row.reason.as_deref()),
        (QueueState::Finished, Some("the run was removed"))
    );
}

/// Two workers of one host share its data directory, where the first one still has the lock on the run.
#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_worker_costs_no_attempt_on_its_host() {
    let desk = need!(Desk::postgres().await);
    let run = desk.submit(&slow(&desk), &["--label", &host_label(), "--max-attempts", "2"]);
    let zombie = Live::start(&mut desk.worker("first", &["--once"]));
    wait_for_action(&desk, "first", &run);
    zombie.signal("STOP");
    std::thread::sleep(LEASE * 2);
    for _ in 0..2 {
        desk.work("first", &["--once"])
            .expect(0, &["back in the queue", "is being worked on by process"]);
        let row = desk.row(&run).await;
        assert_eq!((row.state, row.attempts), (QueueState::Queued, 1), "{row:?}");
        desk.execute("UPDATE queue SET due_at = 0").await;
    }
    zombie.signal("CONT");
    zombie.wait().expect(0, &["the lease is lost"]);
    assert_eq!(desk.processes(), [""; 0], "its sandbox is stopped");
    let_go(&desk);
    desk.work("first", &["--once"]).expect(0, &["done"]);
    assert_eq!(desk.recorded(&run), [1, 2]);
}

/// The run waits for CI, which may take an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_terminated_between_iterations_does_not_wait() {
    let ci = "[done]\nwait_for_ci = true\nci_settle_seconds = 1\nci_poll_seconds = 1\n";
    let desk = Desk::sqlite().with_github(ci);
    let github = desk.github.as_ref().unwrap();
    let run = desk.submit(&script([whole_task()]), &[]);
    let worker = Live::start(&mut desk.worker("user", &[]));
    eventually("the pull request is open", || github.pulls(REPO).len() == 1);
    let head = github.pulls(REPO)[0].head_sha.clone();
    github.set_check_run(REPO, &head, "lint", "in_progress", None);
    let events = events_file(&desk, "user", &run);
    eventually("the iteration has ended", || {
        let text = std::fs::read_to_string(&events).unwrap_or_default();
        text.contains("\"pull_request\"")
    });
    worker.signal("TERM");
    worker.wait().expect(0, &["back in the queue"]);
    assert_eq!(desk.row(&run).await.attempts, 0);
    github.set_check_run(REPO, &head, "lint", "completed", Some("success"));
    desk.work("user", &["--once"]).expect(0, &["done"]);
    assert_eq!(desk.recorded(&run), [1]);
    assert_eq!(github.pulls(REPO).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_start_runs_sends_none_to_a_person() {
    let desk = need!(Desk::postgres().await);
    let runs = [(); 3].map(|()| desk.submit_short(&["--label", &host_label(), "--max-attempts", "1"]));
    // What every run on this host needs cannot be read.
    std::fs::create_dir_all(desk.home("broken").join("evidence-key.pem")).unwrap();
    for _ in 0..2 {
        desk.execute("UPDATE queue SET due_at = 0").await;
        let ended = desk.work("broken", &["--drain"]);
        ended.expect(2, &["it could not start on this host", "evidence-key.pem"]);
        let claims = ended.stderr.matches(": claimed").count();
        assert_eq!(claims, 1, "it claims nothing more: {ended:?}");
    }
    desk.execute("UPDATE queue SET due_at = 0, reason = NULL").await;
    let waiting = Live::start(&mut desk.worker("broken", &[]));
    let host_is_named = "SELECT count(*) FROM queue WHERE reason LIKE '%evidence-key.pem%'";
    while desk.count(host_is_named).await == 0 {
        tokio::time::sleep(LEASE / 30).await;
    }
    waiting.signal("TERM");
    waiting.wait().expect(0, &["claiming nothing for 15 s"]);
    for run in &runs {
        let row = desk.row(run).await;
        assert_eq!((row.state, row.attempts), (QueueState::Queued, 0), "{row:?}");
    }
    desk.execute("UPDATE queue SET due_at = 0").await;
    desk.work("good", &["--drain"]).expect(0, &["done"]);
    for run in &runs {
        assert_eq!(desk.row(run).await.outcome.as_deref(), Some("done"));
    }
}

/// Each worker is a new process, so none remembers what the others saw.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_no_worker_can_start_goes_to_a_person_in_the_end() {
    let desk = need!(Desk::postgres().await);
    let run = desk.submit_short(&["--label", &host_label()]);
    for host in ["first", "second"] {
        std::fs::create_dir_all(desk.home(host).join("evidence-key.pem")).unwrap();
    }
    let mut starts = 0;
    while desk.row(&run).await.state == QueueState::Queued {
        let host = ["first", "second"][starts % 2];
        desk.work(host, &["--once"])
            .expect(2, &["it could not start on this host", "evidence-key.pem"]);
        desk.execute("UPDATE queue SET due_at = 0").await;
        starts += 1;
        assert!(starts < 10, "{:?}", desk.row(&run).await);
    }
    let row = desk.row(&run).await;
    assert_eq!((row.state, row.attempts), (QueueState::NeedsPerson, 1), "{row:?}");
    let reason = row.reason.unwrap();
    assert!(
        reason.starts_with("attempt 1 of 3: ") && reason.contains("evidence-key.pem"),
        "{reason}"
    );
    assert_eq!(starts, 4, "three that cost no attempt, and one that does");
}

/// The configuration that the second one needs is broken; the first one has read it.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_start_does_not_end_those_that_run() {
    let desk = need!(Desk::postgres().await);
    let first = desk.submit(&slow(&desk), &["--label", &host_label()]);
    let second = desk.submit_short(&["--label", &host_label(), "--not-before", "2100-01-01T00:00:00Z"]);
    let worker = Live::start(&mut desk.worker("user", &["--max", "2"]));
    wait_for_action(&desk, "user", &first);
    let config = std::fs::read_to_string(desk.place.repo().join("ralph.toml")).unwrap();
    desk.place.write("ralph.toml", "[sandbox\n");
    desk.execute("UPDATE queue SET due_at = 0 WHERE state = 'queued'")
        .await;
    let has_failed = "SELECT count(*) FROM queue WHERE reason LIKE '%ralph.toml%'";
    while desk.count(has_failed).await == 0 {
        tokio::time::sleep(LEASE / 30).await;
    }
    desk.place.write("ralph.toml", &config);
    let_go(&desk);
    desk.wait_until_finished(&first).await;
    worker.signal("TERM");
    assert_eq!(worker.wait().code, Some(0));
    assert_eq!(desk.row(&first).await.outcome.as_deref(), Some("done"));
    // Another run had begun here, so this one is to blame: nothing says that it will pass.
    assert_eq!(desk.row(&second).await.state, QueueState::NeedsPerson);
}
