//! What a worker may do with a claim, and what it may not when it lost it.

use std::time::Duration;

use ralph::RunOutcomeKind;
use ralph::store::{LeaseState, QueueRelease, QueueState};
use ralph::usage::Usd;

use crate::database::{Database, LEASE, claim, row, run, submission};
use crate::on_both;

on_both!(
    a_worker_that_lost_its_lease_is_shut_out,
    a_renewed_lease_lasts,
    a_lease_that_ended_is_still_held_while_no_other_worker_claims_it,
    a_run_without_a_result_goes_to_a_person,
    a_worker_that_shuts_down_costs_no_attempt,
    a_failed_attempt_counts_and_waits,
    a_run_that_did_not_start_waits_and_costs_no_attempt,
    failed_starts_are_counted_until_a_person_queues_the_run_again,
);

fn failed(seconds: u64) -> QueueRelease {
    QueueRelease::Failed {
        retry_after: Duration::from_secs(seconds),
        reason: "the engine is gone".into(),
    }
}

async fn a_worker_that_lost_its_lease_is_shut_out(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    let zombie = claim(&store, "a").await.unwrap();
    database.jump(29).await;
    assert_eq!(claim(&store, "b").await, None);
    database.jump(2).await;
    let owner = claim(&store, "b").await.unwrap();
    assert_eq!((owner.epoch, owner.attempt), (2, 2));

    let before = row(&store, 1).await;
    let spent = Usd::from_cents(1);
    assert_eq!(
        store.renew(&zombie, LEASE, spent).await.unwrap(),
        LeaseState::Lost
    );
    let finished = store.finish(&zombie, RunOutcomeKind::Done, "", spent).await;
    assert_eq!(finished.unwrap(), LeaseState::Lost);
    assert_eq!(
        store.release(&zombie, &failed(0)).await.unwrap(),
        LeaseState::Lost
    );
    assert_eq!(row(&store, 1).await, before);

    let finished = store.finish(&owner, RunOutcomeKind::Done, "", spent).await;
    assert_eq!(finished.unwrap(), LeaseState::Held);
    let late = store.finish(&zombie, RunOutcomeKind::Failed, "", spent).await;
    assert_eq!(late.unwrap(), LeaseState::Lost);
    assert_eq!(row(&store, 1).await.outcome.as_deref(), Some("done"));
}

async fn a_renewed_lease_lasts(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    let owner = claim(&store, "a").await.unwrap();
    for _ in 0..3 {
        database.jump(20).await;
        assert_eq!(
            store.renew(&owner, LEASE, Usd::ZERO).await.unwrap(),
            LeaseState::Held
        );
        assert_eq!(claim(&store, "b").await, None);
    }
}

async fn a_lease_that_ended_is_still_held_while_no_other_worker_claims_it(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    let owner = claim(&store, "a").await.unwrap();
    database.jump(3600).await;
    assert_eq!(
        store.renew(&owner, LEASE, Usd::ZERO).await.unwrap(),
        LeaseState::Held
    );
    assert_eq!(claim(&store, "b").await, None);
}

async fn a_run_without_a_result_goes_to_a_person(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    store.submit(&submission(2)).await.unwrap();
    let mut zombies = Vec::new();
    for attempt in 1..=3 {
        let claimed = claim(&store, "a").await.unwrap();
        assert_eq!((claimed.run.clone(), claimed.attempt), (run(1), attempt));
        zombies.push(claimed);
        database.jump(31).await;
    }
    assert_eq!(
        claim(&store, "b").await.unwrap().run,
        run(2),
        "the next one is claimed instead"
    );
    let poison = row(&store, 1).await;
    assert_eq!(
        (poison.state, poison.attempts, poison.owner),
        (QueueState::NeedsPerson, 3, None)
    );
    assert_eq!(
        poison.reason.as_deref(),
        Some("no attempt ended with a result (3 of 3)")
    );
    for zombie in &zombies {
        let finished = store.finish(zombie, RunOutcomeKind::Done, "", Usd::ZERO).await;
        assert_eq!(finished.unwrap(), LeaseState::Lost);
    }
    assert!(store.requeue(&run(1)).await.unwrap());
    let again = claim(&store, "b").await.unwrap();
    assert_eq!((again.run, again.attempt), (run(1), 1));
    assert!(again.epoch > zombies[2].epoch);
}

async fn a_worker_that_shuts_down_costs_no_attempt(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    for epoch in 1..=5 {
        let claimed = claim(&store, "a").await.unwrap();
        assert_eq!((claimed.epoch, claimed.attempt), (epoch, 1));
        let released = store.release(&claimed, &QueueRelease::Shutdown).await;
        assert_eq!(released.unwrap(), LeaseState::Held);
        let late = store.renew(&claimed, LEASE, Usd::ZERO).await;
        assert_eq!(late.unwrap(), LeaseState::Lost);
        let late = store.finish(&claimed, RunOutcomeKind::Done, "", Usd::ZERO).await;
        assert_eq!(late.unwrap(), LeaseState::Lost);
    }
}

async fn a_failed_attempt_counts_and_waits(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    for attempt in 1..=3 {
        let claimed = claim(&store, "a").await.unwrap();
        assert_eq!(claimed.attempt, attempt);
        assert_eq!(
            store.release(&claimed, &failed(60)).await.unwrap(),
            LeaseState::Held
        );
        assert_eq!(row(&store, 1).await.reason.as_deref(), Some("the engine is gone"));
        assert_eq!(claim(&store, "a").await, None);
        database.jump(61).await;
    }
    assert_eq!(claim(&store, "a").await, None);
    assert_eq!(row(&store, 1).await.state, QueueState::NeedsPerson);
}

async fn a_run_that_did_not_start_waits_and_costs_no_attempt(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    let claimed = claim(&store, "a").await.unwrap();
    let release = QueueRelease::NotStarted {
        retry_after: Duration::from_secs(20),
        reason: "the engine is gone".into(),
    };
    assert_eq!(store.release(&claimed, &release).await.unwrap(), LeaseState::Held);
    let waiting = row(&store, 1).await;
    assert_eq!(
        (waiting.state, waiting.attempts, waiting.reason.as_deref()),
        (QueueState::Queued, 0, Some("the engine is gone"))
    );
    assert_eq!(claim(&store, "b").await, None);
    database.jump(21).await;
    assert_eq!(claim(&store, "b").await.unwrap().attempt, 1);
}

async fn failed_starts_are_counted_until_a_person_queues_the_run_again(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    let (retry_after, reason) = (Duration::ZERO, String::new());
    let busy = QueueRelease::Busy {
        retry_after,
        reason: reason.clone(),
    };
    let not_started = QueueRelease::NotStarted { retry_after, reason };
    for (release, before) in [
        (&not_started, 0),
        (&busy, 1),
        (&not_started, 1),
        (&not_started, 2),
    ] {
        // Another worker each time, as with `--once`.
        let claimed = claim(&store, &before.to_string()).await.unwrap();
        assert_eq!((claimed.attempt, claimed.failed_starts), (1, before));
        let released = store.release(&claimed, release).await;
        assert_eq!(released.unwrap(), LeaseState::Held);
    }
    let last = claim(&store, "a").await.unwrap();
    assert_eq!(last.failed_starts, 3);
    let paused = store.finish(&last, RunOutcomeKind::Paused, "", Usd::ZERO).await;
    assert_eq!(paused.unwrap(), LeaseState::Held);
    assert!(store.requeue(&run(1)).await.unwrap());
    assert_eq!(claim(&store, "a").await.unwrap().failed_starts, 0);
}
