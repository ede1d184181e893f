//! Lists of runs and of workers, and runs that a person takes out of the queue.

use ralph::RunOutcomeKind;
use ralph::store::{IndexedRun, ListedRun, QueueState, RunCursor, RunFilter, Store};
use ralph::usage::Usd;

use crate::database::{Database, claim, row, run, submission};
use crate::on_both;
use crate::runs::indexed;

on_both!(
    a_list_goes_on_after_a_cursor,
    a_list_is_filtered,
    a_listed_run_has_its_place_in_the_queue,
    runs_of_a_host_are_indexed_and_removed,
    workers_are_listed_with_their_runs,
    a_queued_run_is_cancelled_and_a_claimed_one_is_not,
    runs_are_counted_by_state,
);

/// A store with four runs, of which two were created in the same millisecond and one is queued.
async fn four_runs(database: &Database) -> Store {
    let store = database.open().await;
    let named = IndexedRun {
        title: "Raise 100%_all!".into(),
        state: "done".into(),
        project: None,
        ..indexed(2, "a")
    };
    let twin = IndexedRun {
        created: named.created,
        ..indexed(3, "a")
    };
    let runs = [indexed(1, "a"), named, twin, indexed(4, "a")];
    store.index_runs(&runs).await.unwrap();
    store.submit(&submission(1)).await.unwrap();
    store
}

async fn a_list_goes_on_after_a_cursor(database: Database) {
    let store = four_runs(&database).await;
    let all = RunFilter::default();
    let first = store.list_runs(&all, None, 2).await.unwrap();
    let ids = |listed: &[ListedRun]| listed.iter().map(|one| one.run.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&first), [4, 3].map(run), "newest first");
    let cursor = RunCursor {
        created_ms: first[1].run.created.as_millisecond(),
        id: first[1].run.id.to_string(),
    };
    let rest = store.list_runs(&all, Some(&cursor), 100).await.unwrap();
    assert_eq!(ids(&rest), [2, 1].map(run), "also those of the same millisecond");
}

async fn a_list_is_filtered(database: Database) {
    let store = four_runs(&database).await;
    let check = async |expected: &[usize], change: fn(&mut RunFilter)| {
        let mut filter = RunFilter::default();
        change(&mut filter);
        let listed = store.list_runs(&filter, None, 100).await.unwrap();
        let found: Vec<_> = listed.into_iter().map(|listed| listed.run.id).collect();
        let expected: Vec<_> = expected.iter().map(|number| run(*number)).collect();
        assert_eq!(found, expected, "{filter:?}");
    };
    check(&[2], |filter| filter.state = Some("done".into())).await;
    check(&[1], |filter| filter.queue = Some(QueueState::Queued)).await;
    check(&[4, 3, 1], |filter| filter.project = Some("/srv/site".into())).await;
    check(&[2], |filter| filter.text = Some("rAISE 100%_".into())).await;
    check(&[2], |filter| filter.text = Some("%".into())).await;
    check(&[2], |filter| filter.text = Some("all!".into())).await;
    check(&[3], |filter| filter.text = Some("r00003".into())).await;
    check(&[], |filter| filter.text = Some("\0".into())).await;
}

async fn a_listed_run_has_its_place_in_the_queue(database: Database) {
    let store = database.open().await;
    store.index_runs(&[indexed(1, "a")]).await.unwrap();
    let place = async || {
        let listed = store.listed_run(&run(1)).await.unwrap().unwrap();
        assert_eq!(listed.run, indexed(1, "a"));
        (listed.queue, listed.worker)
    };
    assert_eq!(place().await, (None, None));
    store.submit(&submission(1)).await.unwrap();
    assert_eq!(place().await, (Some(QueueState::Queued), None));
    claim(&store, "w").await.unwrap();
    assert_eq!(place().await, (Some(QueueState::Running), Some("w".to_owned())));
    assert_eq!(store.listed_run(&run(2)).await.unwrap(), None);
}

async fn runs_of_a_host_are_indexed_and_removed(database: Database) {
    let store = database.open().await;
    let runs = [indexed(1, "a"), indexed(2, "b"), indexed(3, "a")];
    store.index_runs(&runs).await.unwrap();
    store.index_runs(&[]).await.unwrap();
    store.unindex_run(&run(1), "b").await.unwrap();
    let repository = indexed(1, "a").repository;
    let mut of_host = store.runs_of_host("a").await.unwrap();
    of_host.sort();
    assert_eq!(of_host, [(run(1), repository.clone()), (run(3), repository)]);
    store.unindex_run(&run(1), "a").await.unwrap();
    assert_eq!(store.runs_of_host("a").await.unwrap().len(), 1);
}

async fn workers_are_listed_with_their_runs(database: Database) {
    let store = database.open().await;
    for number in 1..=3 {
        store.submit(&submission(number)).await.unwrap();
    }
    for worker in ["b", "a"] {
        claim(&store, worker).await.unwrap();
    }
    let claimed = store.claimed_runs().await.unwrap();
    let shown: Vec<_> = claimed
        .iter()
        .map(|one| (one.worker.as_str(), one.run.clone(), one.attempt))
        .collect();
    assert_eq!(shown, [("a", run(2), 1), ("b", run(1), 1)]);
    assert!((1..=30_000).contains(&claimed[0].lease_ms), "{claimed:?}");
    database.jump(60).await;
    assert!(store.claimed_runs().await.unwrap()[0].lease_ms < 0);
}

async fn a_queued_run_is_cancelled_and_a_claimed_one_is_not(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    let claimed = claim(&store, "a").await.unwrap();
    assert!(!store.cancel_queued(&run(1), "a person").await.unwrap());
    let paused = store
        .finish(&claimed, RunOutcomeKind::Paused, "", Usd::ZERO)
        .await;
    assert_eq!(paused.unwrap(), ralph::store::LeaseState::Held);
    assert!(store.cancel_queued(&run(1), "a \0 person").await.unwrap());
    assert!(!store.cancel_queued(&run(1), "again").await.unwrap());
    let row = row(&store, 1).await;
    assert_eq!(
        (
            row.state,
            row.outcome.as_deref(),
            row.reason.as_deref(),
            row.epoch
        ),
        (
            QueueState::Finished,
            Some("stopped"),
            Some("a \u{fffd} person"),
            claimed.epoch + 1
        )
    );
    assert_eq!(store.queue_row(&run(1)).await.unwrap(), Some(row));
    assert_eq!(store.queue_row(&run(2)).await.unwrap(), None);
    assert_eq!(claim(&store, "a").await, None);
}

async fn runs_are_counted_by_state(database: Database) {
    let store = database.open().await;
    for number in 1..=3 {
        store.submit(&submission(number)).await.unwrap();
        store.index_runs(&[indexed(number, "a")]).await.unwrap();
    }
    claim(&store, "a").await.unwrap();
    let count = |state: &str, count| (state.to_owned(), count);
    assert_eq!(
        store.queue_counts().await.unwrap(),
        [count("queued", 2), count("running", 1)]
    );
    assert_eq!(store.run_counts().await.unwrap(), [count("paused", 3)]);
}
