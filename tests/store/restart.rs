//! The database itself crashes in the middle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ralph::store::{ClaimRequest, LeaseState, QueueState, Store, Submission};
use ralph::usage::Usd;
use ralph::{RunId, RunOutcomeKind};
use sqlx::{Connection, PgConnection};

use crate::database::{Database, address, request, submission};
use crate::need;
use crate::support::postgres::PostgresServer;

const RUNS: usize = 90;
const WORKERS: usize = 6;

/// Nothing may take longer than this.
const DEADLINE: Duration = Duration::from_secs(60);

/// Tries until there is an answer. An error leaves unknown whether the statement took effect.
macro_rules! retry {
    ($attempt:expr) => {{
        let started = Instant::now();
        loop {
            match $attempt.await {
                Ok(value) => break value,
                Err(error) => assert!(started.elapsed() < DEADLINE, "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_postgres_crashes() {
    let server = need!(PostgresServer::start(&[]));
    let url = Database::create(&server).await;
    let store = Store::open(&address(&url)).await.unwrap();
    let begun = postmaster_start(&url).await;

    let submitting = tokio::spawn(submit_all(store.clone()));
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..WORKERS {
        workers.spawn(work(Store::open(&address(&url)).await.unwrap(), number));
    }
    for share in [RUNS / 3, 2 * RUNS / 3] {
        wait_until_finished(&store, share).await;
        server.restart();
    }
    submitting.await.unwrap();
    wait_until_finished(&store, RUNS).await;

    let mut finished_by: BTreeMap<RunId, BTreeSet<u64>> = BTreeMap::new();
    for (run, epoch) in workers.join_all().await.into_iter().flatten() {
        finished_by.entry(run).or_default().insert(epoch);
    }
    let rows = store.queue().await.unwrap();
    assert_eq!(rows.len(), RUNS);
    for row in rows {
        assert_eq!(row.state, QueueState::Finished, "{row:?}");
        assert_eq!(
            finished_by.remove(&row.run),
            Some(BTreeSet::from([row.epoch])),
            "{row:?}"
        );
    }
    assert_ne!(postmaster_start(&url).await, begun, "it did not restart");
}

async fn submit_all(store: Store) {
    for number in 0..RUNS {
        let submission = Submission {
            max_attempts: 100,
            ..submission(number)
        };
        retry!(store.submit(&submission));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Claims and finishes runs until all are finished. Returns those that it finished, with the epochs.
async fn work(store: Store, number: usize) -> Vec<(RunId, u64)> {
    let request = ClaimRequest {
        lease: Duration::from_secs(2),
        ..request(&format!("worker {number}"))
    };
    let mut finished = Vec::new();
    loop {
        let Some(claim) = retry!(store.claim(&request)) else {
            let rows = retry!(store.queue());
            if rows.len() == RUNS && rows.iter().all(|row| row.state == QueueState::Finished) {
                return finished;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        tokio::time::sleep(Duration::from_millis(20)).await;
        if retry!(store.renew(&claim, request.lease, Usd::from_cents(1))) == LeaseState::Lost {
            continue;
        }
        if retry!(store.finish(&claim, RunOutcomeKind::Done, "", Usd::from_cents(2))) == LeaseState::Held {
            finished.push((claim.run, claim.epoch));
        }
    }
}

async fn wait_until_finished(store: &Store, count: usize) {
    let started = Instant::now();
    loop {
        let rows = retry!(store.queue());
        if rows
            .iter()
            .filter(|row| row.state == QueueState::Finished)
            .count()
            >= count
        {
            return;
        }
        assert!(
            started.elapsed() < DEADLINE,
            "{count} runs are not finished: {rows:#?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn postmaster_start(url: &str) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let query = sqlx::query_scalar("SELECT CAST(pg_postmaster_start_time() AS TEXT)");
    query.fetch_one(&mut connection).await.unwrap()
}
