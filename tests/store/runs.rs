//! The index of runs.

use std::slice::from_ref;
use std::time::Duration;

use jiff::Timestamp;
use ralph::store::IndexedRun;
use ralph::usage::Usd;

use crate::database::{Database, run, submission};
use crate::on_both;

on_both!(
    a_run_is_read_back_as_it_was_written,
    an_older_journal_does_not_overwrite_a_newer_one,
    a_rebuild_replaces_the_runs_of_one_host_and_leaves_the_queue,
);

pub fn indexed(number: usize, host: &str) -> IndexedRun {
    IndexedRun {
        id: run(number),
        host: host.into(),
        created: Timestamp::from_millisecond(1_700_000_000_123 + i64::try_from(number).unwrap()).unwrap(),
        updated: Timestamp::from_millisecond(1_700_000_100_456).unwrap(),
        state: "paused".into(),
        reason: Some("a question".into()),
        title: "Mend the \u{1f6d2}".into(),
        repository: "/srv/site/.git".into(),
        branch: "ralph/mend/1".into(),
        project: Some("/srv/site".into()),
        iterations: 3,
        checkboxes: 5,
        ticked: 2,
        tokens: 123_456_789_012,
        cost: Usd::from_nanos(1_234_567_890_123),
        unpriced_calls: 1,
        worked: Duration::from_millis(98_765),
        pull_request: Some("https://forge.example/1".into()),
    }
}

async fn a_run_is_read_back_as_it_was_written(database: Database) {
    let store = database.open().await;
    let bare = IndexedRun {
        reason: None,
        project: None,
        pull_request: None,
        ..indexed(2, "a")
    };
    store.index_runs(from_ref(&bare)).await.unwrap();
    store.index_runs(&[indexed(1, "a")]).await.unwrap();
    assert_eq!(
        store.runs().await.unwrap(),
        [indexed(1, "a"), bare],
        "oldest first"
    );
}

async fn an_older_journal_does_not_overwrite_a_newer_one(database: Database) {
    let store = database.open().await;
    let newer = indexed(1, "a");
    let older = IndexedRun {
        updated: newer.updated - Duration::from_secs(1),
        iterations: 1,
        ..indexed(1, "b")
    };
    store.index_runs(from_ref(&newer)).await.unwrap();
    store.index_runs(from_ref(&older)).await.unwrap();
    assert_eq!(store.runs().await.unwrap(), from_ref(&newer));
    let next = IndexedRun {
        iterations: 4,
        ..indexed(1, "b")
    };
    store.index_runs(from_ref(&next)).await.unwrap();
    assert_eq!(store.runs().await.unwrap(), [next]);
}

async fn a_rebuild_replaces_the_runs_of_one_host_and_leaves_the_queue(database: Database) {
    let store = database.open().await;
    for (number, host) in [(1, "a"), (2, "b"), (3, "a")] {
        store.index_runs(&[indexed(number, host)]).await.unwrap();
    }
    store.submit(&submission(1)).await.unwrap();
    let queue = store.queue().await.unwrap();
    store
        .replace_runs("a", &[indexed(3, "a"), indexed(4, "a")])
        .await
        .unwrap();
    let found: Vec<_> = store
        .runs()
        .await
        .unwrap()
        .into_iter()
        .map(|run| run.id)
        .collect();
    assert_eq!(found, [2, 3, 4].map(run));
    assert_eq!(store.queue().await.unwrap(), queue);
}
