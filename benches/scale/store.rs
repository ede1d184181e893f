//! Single calls of the store with many rows: claims, lists and events, on both engines; and connections of Postgres.

use std::time::Instant;

use futures_util::future::try_join_all;
use ralph::RunOutcomeKind;
use ralph::id::RunId;
use ralph::store::{EventFile, EventPosition, LeaseState, QueueClaim, RunFilter, Store};
use ralph::usage::Usd;
use support::postgres::PostgresServer;

use super::Fallible;
use super::figure::curve::Curve;
use super::figure::{Samples, quick};
use super::fill::{self, Engine, FilledStore};
use super::queue;

const SIZES: [u64; 4] = [100, 1_000, 10_000, 100_000];
const QUICK_SIZES: [u64; 3] = [100, 1_000, 10_000];
const EVENTS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
const QUICK_EVENTS: [u64; 3] = [1_000, 10_000, 100_000];
const WORKERS: [u64; 3] = [1, 4, 16];
const ROUNDS: usize = 40;
/// How many runs wait where the number of others grows.
const WAITING: u64 = 1_000;
/// How many events a worker mirrors with one statement at most.
const BATCH: u64 = 100;

pub(crate) async fn measure(server: &PostgresServer) -> Fallible<Vec<Curve>> {
    let mut curves = Vec::new();
    for engine in [Engine::Sqlite, Engine::Postgres(server)] {
        curves.extend(claims(engine).await?);
        curves.extend(lists(engine).await?);
        curves.extend(events(engine).await?);
    }
    curves.push(connections(server).await?);
    Ok(curves)
}

fn sizes() -> &'static [u64] {
    if quick::is_quick() { &QUICK_SIZES } else { &SIZES }
}

/// What a claim has to look at: runs that wait, that others work on, or whose leases have ended; what was spent today.
async fn claims(engine: Engine<'_>) -> Fallible<Vec<Curve>> {
    let name = |kind: &str| format!("claim-{kind}-{}", engine.name());
    let what = "A claim where so many runs wait.";
    let mut queued = Curve::new(name("queued"), "queued runs", what, "ms");
    let what = "A claim where so many runs are claimed and 1,000 wait behind them.";
    let mut running = Curve::new(name("running"), "claimed runs", what, "ms");
    let what = "A claim where the leases of so many runs have ended, because their workers died.";
    let mut expired = Curve::new(name("expired"), "ended leases", what, "ms");
    let what = "A claim with spending limits, where so many runs used something today and 1,000 wait.";
    let mut spent = Curve::new(name("spent"), "runs that ended today", what, "ms");
    for size in sizes() {
        let filled = FilledStore::new(engine).await?;
        filled.queued(*size).await?;
        queued.add(*size, claim_times(&filled.store).await?);
        let filled = FilledStore::new(engine).await?;
        filled.queued(WAITING).await?;
        filled.running(*size).await?;
        running.add(*size, claim_times(&filled.store).await?);
        let filled = FilledStore::new(engine).await?;
        filled.expired(*size).await?;
        expired.add(*size, claim_times(&filled.store).await?);
        let filled = FilledStore::new(engine).await?;
        filled.queued(WAITING).await?;
        filled.ended(*size).await?;
        spent.add(*size, claim_times(&filled.store).await?);
    }
    Ok(vec![queued, running, expired, spent])
}

async fn claim_times(store: &Store) -> Fallible<Samples> {
    let request = queue::request(0)?;
    let mut times = Vec::new();
    for _ in 0..quick::rounds(ROUNDS) {
        let began = Instant::now();
        let claimed = store.claim(&request).await?;
        times.push(began.elapsed());
        let claim = claimed.ok_or("the queue is empty")?;
        let finished = store.finish(&claim, RunOutcomeKind::Done, "", Usd::ZERO).await?;
        if finished != LeaseState::Held {
            return Err("a claim was lost".into());
        }
    }
    Ok(Samples::milliseconds(times))
}

async fn lists(engine: Engine<'_>) -> Fallible<Vec<Curve>> {
    let curve = |kind: &str, what| {
        Curve::new(
            format!("{kind}-{}", engine.name()),
            "runs in the index",
            what,
            "ms",
        )
    };
    let mut first = curve("list", "The newest 50 runs.");
    let mut search = curve("list-search", "The runs with a text that no run has.");
    let mut counts = curve(
        "count",
        "The number of runs in each state, as metrics ask for it.",
    );
    for size in sizes() {
        let filled = FilledStore::new(engine).await?;
        filled.indexed(*size).await?;
        filled.queued(*size).await?;
        let store = &filled.store;
        let no_run = RunFilter {
            text: Some("no such text".to_owned()),
            ..RunFilter::default()
        };
        let (mut firsts, mut searches, mut countings) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..quick::rounds(ROUNDS) {
            let began = Instant::now();
            store.list_runs(&RunFilter::default(), None, 50).await?;
            firsts.push(began.elapsed());
            let began = Instant::now();
            store.list_runs(&no_run, None, 50).await?;
            searches.push(began.elapsed());
            let began = Instant::now();
            store.run_counts().await?;
            countings.push(began.elapsed());
        }
        first.add(*size, Samples::milliseconds(firsts));
        search.add(*size, Samples::milliseconds(searches));
        counts.add(*size, Samples::milliseconds(countings));
    }
    Ok(vec![first, search, counts])
}

async fn events(engine: Engine<'_>) -> Fallible<Vec<Curve>> {
    let curve =
        |kind: &str, what| Curve::new(format!("{kind}-{}", engine.name()), "mirrored events", what, "ms");
    let mut mirror = curve(
        "mirror",
        "Mirroring 100 events of a run that has so many in the store.",
    );
    let mut page = curve("mirrored-page", "Its newest 100 events from the store.");
    for size in quick::pick(&EVENTS[..], &QUICK_EVENTS[..]) {
        let filled = FilledStore::new(engine).await?;
        filled.running(1).await?;
        filled.events(*size).await?;
        let claim = claim_of(&format!("{}1000001", fill::RUNNING))?;
        let batch = vec!["{\"event\":\"output\",\"text\":\"one line of output\"}".to_owned(); 100];
        let file = EventFile {
            name: "bench:events.jsonl".to_owned(),
            mirrored: 1,
        };
        let (mut mirrors, mut pages) = (Vec::new(), Vec::new());
        let mut number = *size;
        for _ in 0..quick::rounds(ROUNDS) {
            let began = Instant::now();
            let added = filled.store.add_events(&claim, number + 1, &batch, &file).await?;
            mirrors.push(began.elapsed());
            if added != LeaseState::Held {
                return Err("a claim was lost".into());
            }
            let after = EventPosition { epoch: 1, number };
            let began = Instant::now();
            let found = filled.store.events(&claim.run, after, 100).await?;
            pages.push(began.elapsed());
            number += BATCH;
            if found.len() as u64 != BATCH {
                return Err(format!("{} events instead of {BATCH}", found.len()).into());
            }
        }
        mirror.add(*size, Samples::milliseconds(mirrors));
        page.add(*size, Samples::milliseconds(pages));
    }
    Ok(vec![mirror, page])
}

/// The claim of a run that was filled in as claimed.
pub(crate) fn claim_of(run: &str) -> Fallible<QueueClaim> {
    Ok(QueueClaim {
        run: RunId::parse(run)?,
        epoch: 1,
        attempt: 1,
        max_attempts: 3,
        failed_starts: 0,
        project: "project-1".to_owned(),
        request: "{}".to_owned(),
    })
}

/// What workers with one run each hold: a listener, and a connection for each call that goes on at the same time.
async fn connections(server: &PostgresServer) -> Fallible<Curve> {
    let what = "Connections to Postgres of so many workers, each with one run: a listener, and the three calls of a run at once.";
    let mut curve = Curve::new("connections", "workers", what, "connections");
    for size in WORKERS {
        let filled = FilledStore::new(Engine::Postgres(server)).await?;
        filled.running(size).await?;
        let others = filled.connections().await?;
        let (mut stores, mut signals) = (Vec::new(), Vec::new());
        for _ in 0..size {
            let store = filled.another_process().await?;
            signals.push(store.listen().await?);
            stores.push(store);
        }
        let calls = stores.iter().enumerate().map(|(number, store)| async move {
            let claim = claim_of(&format!("{}{}", fill::RUNNING, 1_000_001 + number))?;
            let calls = try_join_all((0..3).map(|_| store.interventions_for(&claim)));
            calls.await?;
            Fallible::Ok(())
        });
        try_join_all(calls).await?;
        let now = filled.connections().await? - others;
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        curve.add(size, Samples::one(now as f64));
    }
    Ok(curve)
}
