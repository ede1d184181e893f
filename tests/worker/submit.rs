//! `ralph submit`: what it creates, in which order, and what it refuses.

use ralph::store::QueueState;

use crate::desk::{Desk, host_label};
use crate::need;
use crate::support::ralph::{finish, script, whole_task};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_queued_with_the_first_commit_of_its_state() {
    let desk = Desk::sqlite();
    let run = desk.submit_short(&["--priority", "5"]);
    assert_eq!(run, desk.place.run_id());
    let state = format!("refs/ralph/{run}/state");
    let files = desk
        .place
        .git(&["ls-tree", "--name-only", &state, "run.json", "lease.json"]);
    // A lease would keep the worker out that begins the run on another host.
    assert_eq!(files, "run.json\n");
    let row = desk.row(&run).await;
    assert_eq!((row.state, row.priority, row.epoch), (QueueState::Queued, 5, 0));
    assert_eq!(desk.place.status()["run"], run.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_queued_begins_like_any_other() {
    let desk = Desk::sqlite();
    let run = desk.submit_short(&[]);
    let ended = desk.run(&["resume", "--json", &run]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let events = ended.json_lines();
    assert!(
        events.iter().any(|event| event["event"] == "run_started"),
        "{ended:?}"
    );
    assert_eq!(desk.place.status()["iterations"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_the_queue_leaves_a_run_that_can_be_submitted() {
    let desk = Desk::sqlite();
    let run = desk.submit_short(&[]);
    // As if the process had been killed after the directory was there, and before everything else.
    let state = format!("refs/ralph/{run}/state");
    desk.place.git(&["update-ref", "-d", &state]);
    std::fs::remove_file(desk.place.home().join("ralph.db")).unwrap();
    assert_eq!(desk.place.status()["run"], run.as_str());
    for _ in 0..2 {
        let ended = desk.run(&["submit", "--run", &run]);
        assert_eq!(ended.stdout.trim(), run, "{ended:?}");
    }
    desk.place.git(&["rev-parse", "--verify", &state]);
    let rows = desk.store().await.queue().await.unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(desk.place.runs().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_this_host_needs_its_label_on_a_shared_queue() {
    let desk = need!(Desk::postgres().await);
    let file = desk.script_file(&script([whole_task()]));
    let submit = ["submit", "--script", file.to_str().unwrap()];
    desk.run(&submit).expect_refused(&[
        "is a directory of this host",
        &format!("hint: `--label {}`", host_label()),
    ]);
    assert_eq!(desk.place.runs().len(), 0, "nothing is created before");
    let url = format!("file://{}", desk.place.repo().display());
    desk.run(&[&submit[..], &["--repo", &url]].concat())
        .expect_refused(&["the state of the run would be in the mirror", "hint: `--label "]);
    assert_eq!(desk.place.runs().len(), 0, "nothing is created before");
    let host = host_label();
    let run = desk.submit_short(&["--label", &host]);
    assert_eq!(desk.row(&run).await.state, QueueState::Queued);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_removed_leaves_the_queue() {
    let desk = Desk::sqlite();
    let (removed, other) = (desk.submit_short(&[]), desk.submit_short(&[]));
    desk.run(&["rm", &removed])
        .expect(0, &[&format!("Removed run {removed}.")]);
    let row = desk.row(&removed).await;
    assert_eq!(
        (row.state, row.reason.as_deref()),
        (QueueState::Finished, Some("it was removed"))
    );
    let ended = desk.work("user", &["--drain"]);
    ended.expect(0, &[&format!("run {other}: claimed"), "done"]);
    assert!(!ended.stderr.contains(&removed), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_the_queue_is_not_pruned() {
    let desk = Desk::sqlite();
    let run = desk.submit_short(&[]);
    let stays = format!("Run {run} is in the queue and stays.");
    for args in [&["--dry-run"][..], &[]] {
        let ended = desk.run(&[&["prune", "--older-than", "0s"], args].concat());
        assert_eq!(ended.expect(0, &[&stays, "nothing to remove"]).stdout, "");
    }
    desk.work("user", &["--drain"]).expect(0, &["done"]);
    let pruned = desk.run(&["prune", "--older-than", "0s"]);
    assert_eq!(pruned.expect(0, &["Removed 1 run."]).stdout.trim(), run);
}

async fn a_run_is_taken_out_of_the_queue(desk: Desk, args: &[&str]) {
    let run = desk.submit_short(args);
    desk.run(&["stop", &run]).expect(
        0,
        &[
            &format!("Took run {run} out of the queue."),
            &format!(
                "next: `ralph submit --run {run}` queues it again, `ralph resume {run}` works on it now"
            ),
        ],
    );
    let row = desk.row(&run).await;
    assert_eq!(
        (row.state, row.outcome.as_deref()),
        (QueueState::Finished, Some("stopped"))
    );
    assert!(row.reason.unwrap().ends_with(" took it out of the queue"));
    desk.run(&["stop", &run])
        .expect(2, &["is not live", &format!("hint: `ralph resume {run}`")]);
    desk.work("user", &["--drain"]).expect(0, &["There was no run"]);
    desk.run(&["submit", "--run", &run]).expect(0, &["Queued."]);
    desk.work("user", &["--drain"]).expect(0, &["done"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_taken_out_of_a_queue_in_sqlite() {
    a_run_is_taken_out_of_the_queue(Desk::sqlite(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_taken_out_of_a_queue_in_postgres() {
    let desk = need!(Desk::postgres().await);
    a_run_is_taken_out_of_the_queue(desk, &["--label", &host_label()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_or_a_time_of_another_form_is_refused() {
    let desk = Desk::sqlite();
    for (args, said) in [
        (["submit", "--label", "macos"], "expected `key=value`"),
        (
            ["submit", "--not-before", "tomorrow"],
            "expected a time such as `2026-11-17T20:00:00Z`",
        ),
        (["submit", "--run", "r00000"], "r00000"),
        (["submit", "--run", "unheard-of"], "no run is named `unheard-of`"),
    ] {
        finish(&mut desk.ralph(&args)).expect(2, &[said]);
    }
    assert_eq!(desk.place.runs().len(), 0);
}
