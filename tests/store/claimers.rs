//! Many workers at once.

use std::collections::BTreeSet;

use ralph::RunOutcomeKind;
use ralph::store::LeaseState;
use ralph::usage::Usd;

use crate::database::{Database, claim, submission};
use crate::on_both;

const RUNS: usize = 320;
const WORKERS: usize = 32;

on_both!(
    each_run_is_claimed_by_one_of_32_workers,
    a_new_database_can_be_opened_by_many_at_once
);

async fn each_run_is_claimed_by_one_of_32_workers(database: Database) {
    let store = database.open().await;
    for number in 0..RUNS {
        store.submit(&submission(number)).await.unwrap();
    }
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..WORKERS {
        // Each has connections of its own, as a process would.
        let store = database.open().await;
        workers.spawn(async move {
            let mut claimed = Vec::new();
            while let Some(claim) = claim(&store, &format!("worker {number}")).await {
                let finished = store.finish(&claim, RunOutcomeKind::Done, "", Usd::ZERO).await;
                assert_eq!(finished.unwrap(), LeaseState::Held);
                claimed.push(claim.run);
            }
            claimed
        });
    }
    let claimed: Vec<_> = workers.join_all().await.into_iter().flatten().collect();
    let distinct: BTreeSet<_> = claimed.iter().collect();
    assert_eq!((claimed.len(), distinct.len()), (RUNS, RUNS));
}

async fn a_new_database_can_be_opened_by_many_at_once(database: Database) {
    let opened = (0..8).map(|_| database.open());
    for store in futures_util::future::join_all(opened).await {
        assert!(store.runs().await.unwrap().is_empty());
    }
}
