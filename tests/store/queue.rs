//! Submitting and claiming.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use ralph::RunOutcomeKind;
use ralph::store::{LeaseState, QueueState};
use ralph::usage::Usd;

use crate::database::{Database, claim, labels, request, row, run, submission};
use crate::on_both;

on_both!(
    a_run_is_claimed_once_and_finished,
    the_highest_priority_comes_first_and_then_the_oldest,
    a_run_waits_for_its_time,
    a_worker_claims_only_what_it_has_the_labels_for,
    a_paused_run_waits_for_a_person_and_can_be_queued_again,
    new_epochs_are_above_the_highest_that_was_found,
    ended_runs_are_removed_and_their_epochs_are_not_used_again,
    a_waiting_worker_is_woken,
);

async fn a_run_is_claimed_once_and_finished(database: Database) {
    let store = database.open().await;
    assert!(store.submit(&submission(1)).await.unwrap());
    assert!(!store.submit(&submission(1)).await.unwrap());

    let claimed = claim(&store, "a").await.unwrap();
    assert_eq!(
        (claimed.run.clone(), claimed.epoch, claimed.attempt),
        (run(1), 1, 1)
    );
    assert_eq!(
        (&*claimed.project, &*claimed.request),
        ("site", r#"{"number":1}"#)
    );
    assert_eq!(row(&store, 1).await.owner.as_deref(), Some("a"));
    assert_eq!(claim(&store, "b").await, None);

    let finish = || store.finish(&claimed, RunOutcomeKind::Done, "all \0 is ticked", Usd::ZERO);
    assert_eq!(finish().await.unwrap(), LeaseState::Held);
    let finished = row(&store, 1).await;
    assert_eq!((finished.state, finished.owner), (QueueState::Finished, None));
    assert_eq!(finished.outcome.as_deref(), Some("done"));
    assert_eq!(finished.reason.as_deref(), Some("all \u{fffd} is ticked"));
    assert_eq!(
        finish().await.unwrap(),
        LeaseState::Held,
        "its first answer may be lost"
    );
    assert_eq!(claim(&store, "b").await, None);
    assert!(!store.submit(&submission(1)).await.unwrap());
}

async fn the_highest_priority_comes_first_and_then_the_oldest(database: Database) {
    let store = database.open().await;
    for (number, priority) in [(1, 0), (2, 5), (3, -1), (4, 5)] {
        let mut submission = submission(number);
        submission.priority = priority;
        store.submit(&submission).await.unwrap();
    }
    let mut order = Vec::new();
    while let Some(claimed) = claim(&store, "a").await {
        order.push(claimed.run);
    }
    assert_eq!(order, [2, 4, 1, 3].map(run));
}

async fn a_run_waits_for_its_time(database: Database) {
    let store = database.open().await;
    let mut submission = submission(1);
    submission.not_before = Some(Timestamp::now() + Duration::from_secs(3600));
    store.submit(&submission).await.unwrap();
    assert_eq!(claim(&store, "a").await, None);
    database.jump(3590).await;
    assert_eq!(claim(&store, "a").await, None);
    database.jump(10).await;
    assert!(claim(&store, "a").await.is_some());
}

async fn a_worker_claims_only_what_it_has_the_labels_for(database: Database) {
    let store = database.open().await;
    let mut submission = submission(1);
    submission.labels = labels(&["provider=tart", "os=macos", "repository=acme/site"]);
    store.submit(&submission).await.unwrap();
    for offers in [
        &[][..],
        &["provider=docker", "os=linux", "repository=*"],
        &["provider=tart", "os=linux", "repository=*"],
        &["provider=tart", "os=macos"],
        &["provider=tart", "os=macos", "repository=acme/sit"],
        &["provider=tart", "os=macos", "repo=*", "arch=*"],
    ] {
        let mut request = request("a");
        request.offers = labels(offers);
        assert_eq!(store.claim(&request).await.unwrap(), None, "{offers:?}");
    }
    let mut request = request("a");
    request.offers = labels(&[
        "arch=aarch64",
        "provider=tart",
        "provider=docker",
        "os=macos",
        "repository=*",
    ]);
    assert!(store.claim(&request).await.unwrap().is_some());
}

async fn a_paused_run_waits_for_a_person_and_can_be_queued_again(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    let first = claim(&store, "a").await.unwrap();
    assert!(!store.requeue(&run(1)).await.unwrap(), "it is being worked on");
    let paused = store
        .finish(&first, RunOutcomeKind::Paused, "a question", Usd::ZERO)
        .await;
    assert_eq!(paused.unwrap(), LeaseState::Held);
    assert_eq!(row(&store, 1).await.state, QueueState::NeedsPerson);
    assert_eq!(claim(&store, "a").await, None);

    assert!(store.requeue(&run(1)).await.unwrap());
    let late = store
        .finish(&first, RunOutcomeKind::Failed, "late", Usd::ZERO)
        .await;
    assert_eq!(late.unwrap(), LeaseState::Lost);
    let second = claim(&store, "b").await.unwrap();
    assert_eq!((second.epoch, second.attempt), (2, 1));
}

async fn new_epochs_are_above_the_highest_that_was_found(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    store.raise_epochs(41).await.unwrap();
    store.raise_epochs(7).await.unwrap();
    assert_eq!(claim(&store, "a").await.unwrap().epoch, 42);
    database.jump(31).await;
    assert_eq!(claim(&store, "b").await.unwrap().epoch, 43);
}

async fn ended_runs_are_removed_and_their_epochs_are_not_used_again(database: Database) {
    let store = database.open().await;
    let spent = Usd::from_cents(5);
    for number in 1..=3 {
        store.submit(&submission(number)).await.unwrap();
        let claimed = claim(&store, "a").await.unwrap();
        let outcome = if number == 2 {
            RunOutcomeKind::Paused
        } else {
            RunOutcomeKind::Done
        };
        assert_eq!(
            store.finish(&claimed, outcome, "", spent).await.unwrap(),
            LeaseState::Held
        );
    }
    store.submit(&submission(4)).await.unwrap();
    let hour = Duration::from_secs(3600);
    assert_eq!(store.remove_ended(hour).await.unwrap(), 0);
    database.jump(3601).await;
    assert_eq!(store.remove_ended(hour).await.unwrap(), 2);
    let left: Vec<_> = store
        .queue()
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.run)
        .collect();
    assert_eq!(left, [run(2), run(4)]);

    assert!(store.submit(&submission(1)).await.unwrap());
    let mut again = claim(&store, "a").await.unwrap();
    if again.run != run(1) {
        again = claim(&store, "a").await.unwrap();
    }
    assert_eq!((again.run, again.epoch), (run(1), 2), "its first epoch was 1");
}

async fn a_waiting_worker_is_woken(database: Database) {
    let store = database.open().await;
    let mut signal = store.listen().await.unwrap();
    let started = Instant::now();
    for number in 1..=3 {
        assert_eq!(claim(&store, "a").await, None);
        let submission = submission(number);
        let waited = tokio::join!(signal.wait_for_work(), store.submit(&submission));
        assert!(waited.1.unwrap());
        assert!(claim(&store, "a").await.is_some());
    }
    // Without a notification each waits for two seconds.
    if database.is_postgres() {
        assert!(
            started.elapsed() < Duration::from_secs(4),
            "{:?}",
            started.elapsed()
        );
    } else {
        assert!(
            started.elapsed() >= Duration::from_secs(6),
            "{:?}",
            started.elapsed()
        );
    }
}
