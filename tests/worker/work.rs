//! `ralph worker`: what it claims, and what becomes of it.

use ralph::store::QueueState;
use serde_json::json;

use crate::desk::{Desk, host_label};
use crate::need;
use crate::support::ralph::{Ended, call, doing, finish, run, script, whole_task, write};

/// The order in which a worker claimed runs.
fn claimed(ended: &Ended) -> Vec<&str> {
    ended
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("run ")?.split_once(": claimed"))
        .map(|(run, _)| run)
        .collect()
}

async fn a_queued_run_is_done_once(desk: Desk) {
    let run = desk.submit_short(&["--label", &host_label()]);
    let ended = desk.work("first", &["--once"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(claimed(&ended), [run.as_str()]);
    let row = desk.row(&run).await;
    assert_eq!(
        (row.state, row.outcome.as_deref(), row.epoch),
        (QueueState::Finished, Some("done"), 1)
    );
    assert_eq!(desk.recorded(&run), [1]);
    let branch = desk.branch(&run);
    assert_eq!(desk.place.git(&["show", &format!("{branch}:b.txt")]), "hello\n");
    // The epoch of the claim is in the lease.
    let lease = desk
        .place
        .git(&["show", &format!("refs/ralph/{run}/state:lease.json")]);
    assert!(lease.contains("\"epoch\":1"), "{lease}");
    let again = desk.work("second", &["--once"]);
    again.expect(0, &["There was no run for this worker."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_run_is_done_once_on_sqlite() {
    a_queued_run_is_done_once(Desk::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_run_is_done_once_on_postgres() {
    a_queued_run_is_done_once(need!(Desk::postgres().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_for_a_worker_with_its_labels() {
    let desk = Desk::sqlite();
    let run = desk.submit_short(&["--label", "pool=night"]);
    let refused = desk.work("user", &["--drain"]);
    refused.expect(0, &["There was no run for this worker."]);
    // `local` is offered because the configuration has it.
    assert!(
        refused.stderr.contains("provider=local") && refused.stderr.contains(&host_label()),
        "{refused:?}"
    );
    let docker = ["--drain", "--label", "pool=*", "--set", "sandbox.type=docker"];
    desk.work("user", &docker)
        .expect(0, &["There was no run for this worker."]);
    assert_eq!(desk.row(&run).await.state, QueueState::Queued);
    let ended = desk.work("user", &["--drain", "--label", "pool=*"]);
    assert_eq!(claimed(&ended), [run.as_str()], "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn higher_priorities_come_first_and_drain_leaves_nothing() {
    let desk = Desk::sqlite();
    let low = desk.submit_short(&["--priority=-1"]);
    let high = desk.submit_short(&["--priority", "1"]);
    let middle = desk.submit_short(&[]);
    let ended = desk.work("user", &["--drain"]);
    assert_eq!(claimed(&ended), [high, middle, low], "{ended:?}");
    for row in desk.store().await.queue().await.unwrap() {
        assert_eq!(row.outcome.as_deref(), Some("done"), "{row:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_runs_are_worked_on_at_once() {
    let desk = Desk::sqlite();
    // Each waits for the file of the other one.
    let meet = |own: &str, other: &str| {
        let dir = desk.place.path().display();
        let wait = format!("touch {dir}/{own}; while ! [ -e {dir}/{other} ]; do sleep 0.05; done");
        script([doing([run(&wait)]), whole_task()])
    };
    for names in [("one", "two"), ("two", "one")] {
        desk.submit(&meet(names.0, names.1), &[]);
    }
    let ended = desk.work("user", &["--drain", "--max", "2"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for row in desk.store().await.queue().await.unwrap() {
        assert_eq!(row.outcome.as_deref(), Some("done"), "{row:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_stops_claims_and_is_reported_once() {
    let desk = Desk::sqlite();
    let (first, second) = (desk.submit_short(&[]), desk.submit_short(&[]));
    let args = ["--drain", "--set", "worker.max_cost_usd_per_day=0.001"];
    let ended = desk.work("user", &args);
    assert_eq!(claimed(&ended), [first.as_str()], "{ended:?}");
    let said = ended.stderr.matches("worker.max_cost_usd_per_day").count();
    assert_eq!(said, 1, "{ended:?}");
    assert_eq!(desk.row(&second).await.state, QueueState::Queued);
    let of_project = [
        "--drain",
        "--set",
        "worker.max_cost_usd_per_project_per_day=0.001",
    ];
    desk.work("user", &of_project).expect(
        0,
        &["worker.max_cost_usd_per_project_per_day", "There was no run"],
    );
    let ended = desk.work("user", &["--drain"]);
    assert_eq!(claimed(&ended), [second.as_str()], "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_attempts_fail_goes_to_a_person_with_the_reason() {
    let desk = Desk::sqlite();
    // The script has no second iteration, and the first one does not finish the task.
    let poison = desk.submit(
        &script([doing([write("a.txt", "hello\n")])]),
        &["--max-attempts", "1"],
    );
    let ended = desk.work("user", &["--once"]);
    assert_eq!(ended.code, Some(0), "the worker itself did not fail: {ended:?}");
    let row = desk.row(&poison).await;
    assert_eq!(row.state, QueueState::NeedsPerson);
    let reason = row.reason.unwrap();
    assert!(
        reason.starts_with("attempt 1 of 1: ") && reason.contains("script"),
        "{reason}"
    );
    // A person queues it again.
    desk.run(&["submit", "--run", &poison]);
    assert_eq!(desk.row(&poison).await.state, QueueState::Queued);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_failed_is_repeated_after_a_while() {
    let desk = Desk::sqlite();
    let run = desk.submit(&script([doing([write("a.txt", "hello\n")])]), &[]);
    desk.work("user", &["--drain"])
        .expect(0, &["attempt 1 of 3 failed"]);
    let row = desk.row(&run).await;
    assert_eq!((row.state, row.attempts), (QueueState::Queued, 1));
    desk.work("user", &["--drain"])
        .expect(0, &["There was no run for this worker."]);
    assert!(
        desk.sandbox("user", &run).exists(),
        "the next attempt uses it again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attempt_leaves_no_sandbox_where_another_host_may_go_on() {
    let desk = need!(Desk::postgres().await);
    let args = ["--label", &host_label()];
    let run = desk.submit(&script([doing([write("a.txt", "hello\n")])]), &args);
    desk.work("first", &["--once"])
        .expect(0, &["attempt 1 of 3 failed"]);
    assert!(desk.home("first").join("runs").join(&run).exists());
    assert!(!desk.sandbox("first", &run).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_queued_again_keeps_its_labels() {
    let desk = need!(Desk::postgres().await);
    let host = host_label();
    let args = ["--label", &host, "--label", "pool=a", "--max-attempts", "1"];
    let run = desk.submit(&script([doing([write("a.txt", "hello\n")])]), &args);
    desk.work("first", &["--once", "--label", "pool=a"]);
    assert_eq!(desk.row(&run).await.state, QueueState::NeedsPerson);
    // Also one that is the default.
    for priority in ["7", "0"] {
        desk.run(&["submit", "--run", &run, "--priority", priority])
            .expect_refused(&["was queued before", "ralph submit --run"]);
    }
    assert_eq!(desk.row(&run).await.state, QueueState::NeedsPerson);
    desk.run(&["submit", "--run", &run]).expect(0, &[]);
    assert_eq!(desk.row(&run).await.state, QueueState::Queued);
    desk.work("second", &["--drain"])
        .expect(0, &["There was no run for this worker."]);
    desk.work("second", &["--once", "--label", "pool=a"])
        .expect(0, &[&run]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_asks_for_a_person_waits_for_one() {
    let desk = Desk::sqlite();
    let pause = json!({"type": "pause", "reason": "which colour?"});
    let run = desk.submit(&json!({"iterations": [[call(&doing([pause]))]]}), &[]);
    desk.work("user", &["--once"]).expect(0, &["paused"]);
    let row = desk.row(&run).await;
    assert_eq!(row.state, QueueState::NeedsPerson);
    assert!(row.reason.unwrap().contains("which colour?"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_by_its_address_is_worked_on_in_a_mirror() {
    let desk = Desk::sqlite();
    let url = format!("file://{}", desk.place.repo().display());
    let run = desk.submit_short(&["--repo", &url]);
    desk.work("user", &["--once"]).expect(0, &["done"]);
    assert_eq!(desk.row(&run).await.outcome.as_deref(), Some("done"));
    // The repository itself has no trace of it.
    assert_eq!(desk.refs().lines().count(), 1, "{}", desk.refs());
}

/// No host has a file of another one: the repository has an address, and the state ref is in a state remote.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_on_another_host_from_the_state_remote_alone() {
    let desk = need!(Desk::postgres().await);
    let remote = desk.place.path().join("state.git");
    desk.place
        .git(&["init", "--quiet", "--bare", remote.to_str().unwrap()]);
    let file = desk.script_file(&script([whole_task()]));
    let url = format!("file://{}", desk.place.repo().display());
    let submit = ["submit", "--script", file.to_str().unwrap(), "--repo", &url];
    let mut command = desk.ralph(&submit);
    let ended = finish(command.env("RALPH_GIT__STATE_REMOTE", &remote));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let run = ended.stdout.trim().to_owned();
    std::fs::remove_dir_all(desk.place.home()).unwrap();
    let mut worker = desk.worker("second", &["--once"]);
    finish(worker.env("RALPH_GIT__STATE_REMOTE", &remote)).expect(0, &["done"]);
    let row = desk.row(&run).await;
    assert_eq!(
        (row.state, row.outcome.as_deref()),
        (QueueState::Finished, Some("done"))
    );
    let dir = format!("--git-dir={}", remote.display());
    let listed = desk.place.git(&[&dir, "for-each-ref", "--format=%(refname)"]);
    assert_eq!(listed, format!("refs/ralph/{run}/state\n"));
}
