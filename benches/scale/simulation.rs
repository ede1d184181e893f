//! Workers over the real queue and store. A simulated worker makes the calls to the store that a real one makes for a run, and does
//! nothing else: no sandbox, no agent. Time is compressed in that it does not wait between them, or it keeps the times of a real one
//! while many runs go on at once.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use ralph::RunOutcomeKind;
use ralph::store::{EventFile, IndexedRun, LeaseState, QueueClaim, RunFilter, Store, StoreError};
use ralph::usage::Usd;
use support::postgres::PostgresServer;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Fallible;
use super::figure::curve::Curve;
use super::figure::{Samples, quick};
use super::fill::{self, Engine, FilledStore};
use super::queue;
use super::store::claim_of;

/// How long a simulated run takes, in seconds.
const RUN_SECONDS: u64 = 300;
/// The lease of the default configuration, which is renewed after each third.
const LEASE: Duration = Duration::from_secs(30);
const RENEW_EVERY: u64 = 10;
/// An iteration takes half a minute and has four lines in the journal; each changes the row in the index.
const INDEX_EVERY: u64 = 8;
/// The agent prints a line each second.
const EVENT: &str = "{\"at\":\"2026-01-01T00:00:00Z\",\"event\":\"output\",\"text\":\"one line of output\"}";

const QUEUED: [u64; 4] = [100, 1_000, 10_000, 100_000];
const QUICK_QUEUED: [u64; 3] = [100, 1_000, 10_000];
const AT_ONCE: [u64; 4] = [10, 100, 1_000, 10_000];
const QUICK_AT_ONCE: [u64; 2] = [10, 100];
/// Runs that one compressed scenario works on at the same time.
const SLOTS: usize = 16;
/// Processes that share them, where processes can share a store.
const PROCESSES: usize = 4;
/// How long a scenario goes on, in seconds.
const DRAIN_SECONDS: u64 = 6;
const DAY_SECONDS: u64 = 12;
const WINDOW_SECONDS: u64 = 8;

const CLAIM: &str = "claim";
const RENEW: &str = "renew";
const REQUESTS: &str = "requests";
const EVENTS: &str = "events";
const INDEX: &str = "index";
const FINISH: &str = "finish";
const LIST: &str = "list";
/// The calls that a run makes while it goes on.
const HEARTBEATS: [&str; 4] = [RENEW, REQUESTS, EVENTS, INDEX];

/// How long calls took, by their names, and how many seconds of runs were simulated.
#[derive(Default)]
struct Tally {
    calls: BTreeMap<&'static str, Vec<Duration>>,
    seconds: u64,
    runs: u64,
    failed: u64,
    /// How long that took.
    took: Duration,
}

impl Tally {
    async fn time<T>(
        &mut self,
        call: &'static str,
        result: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let result = result.await?;
        self.calls.entry(call).or_default().push(began.elapsed());
        Ok(result)
    }

    fn add(&mut self, other: Self) {
        for (call, times) in other.calls {
            self.calls.entry(call).or_default().extend(times);
        }
        self.seconds += other.seconds;
        self.runs += other.runs;
        self.failed += other.failed;
    }

    fn samples(&self, call: &str) -> Option<Samples> {
        let times = self.calls.get(call)?;
        Some(Samples::milliseconds(times.iter().copied()))
    }

    /// So many of something in a second.
    fn rate(&self, count: u64) -> Samples {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let count = count as f64;
        Samples::one(count / self.took.as_secs_f64())
    }

    /// The share of the time in calls that these take, in percent.
    fn share(&self, named: &[&str]) -> f64 {
        let sum = |times: &Vec<Duration>| times.iter().sum::<Duration>().as_secs_f64();
        let all: f64 = self.calls.values().map(sum).sum();
        let some: f64 = named
            .iter()
            .filter_map(|call| self.calls.get(call))
            .map(sum)
            .sum();
        100.0 * some / all
    }
}

pub(crate) async fn measure(server: &PostgresServer) -> Fallible<Vec<Curve>> {
    let mut curves = Vec::new();
    for engine in [Engine::Sqlite, Engine::Postgres(server)] {
        curves.extend(compressed(engine).await?);
        curves.extend(paced(engine).await?);
    }
    Ok(curves)
}

/// So many runs are queued, and workers go through them without waiting.
async fn compressed(engine: Engine<'_>) -> Fallible<Vec<Curve>> {
    let curve = |kind: &str, what, unit| {
        let name = format!("sim-{kind}-{}", engine.name());
        Curve::new(name, "queued runs, simulated", what, unit)
    };
    let what = "Runs claimed and finished in a second, by 16 at a time, with nothing in between.";
    let mut drained = curve("drain", what, "runs/s");
    let what = "Seconds of runs that the store gets through in one second with 16 calls at a time: the runs at once that those calls serve.";
    let mut carried = curve("carried", what, "runs");
    let what = "The part of the time in calls that renewals, requests, events and index rows take.";
    let mut heartbeats = curve("heartbeats", what, "%");
    let what = "The size of the database at the end.";
    let mut size = curve("size", what, "MB");
    let mut calls = [CLAIM, RENEW, LIST].map(|call| {
        let what = match call {
            CLAIM => "A claim, while 16 runs go on without waiting.",
            RENEW => "A renewal of a lease meanwhile.",
            _ => "The newest 50 runs meanwhile.",
        };
        (call, curve(call, what, "ms"))
    });
    for count in quick::pick(&QUEUED[..], &QUICK_QUEUED[..]) {
        let filled = FilledStore::new(engine).await?;
        filled.queued(*count).await?;
        let tally = work(&filled, quick::pick(DRAIN_SECONDS, 2), 0).await?;
        drained.add(*count, tally.rate(tally.runs));
        let filled = FilledStore::new(engine).await?;
        filled.queued(*count).await?;
        filled.indexed(*count).await?;
        let tally = work(&filled, quick::pick(DAY_SECONDS, 2), RUN_SECONDS).await?;
        carried.add(*count, tally.rate(tally.seconds));
        heartbeats.add(*count, Samples::one(tally.share(&HEARTBEATS)));
        #[expect(clippy::cast_precision_loss, reason = "a size for people")]
        size.add(*count, Samples::one(filled.size().await? as f64 / 1e6));
        for (call, curve) in &mut calls {
            curve.add(*count, tally.samples(call).ok_or("a call was never made")?);
        }
    }
    let mut curves = vec![drained, carried, heartbeats, size];
    curves.extend(calls.map(|(_, curve)| curve));
    Ok(curves)
}

/// Lets all slots work on runs of so many seconds, until the queue is empty or the time is over.
async fn work(filled: &FilledStore, seconds: u64, run_seconds: u64) -> Fallible<Tally> {
    let stores = processes(filled, PROCESSES).await?;
    let store = filled.another_process().await?;
    let began = Instant::now();
    let end = began + Duration::from_secs(seconds);
    let mut slots = JoinSet::new();
    for number in 0..SLOTS {
        let store = stores[number % stores.len()].clone();
        slots.spawn(async move { slot(&store, number, end, run_seconds).await });
    }
    let (through, is_through) = tokio::sync::watch::channel(false);
    let lister = tokio::spawn(async move {
        let (mut tally, filter) = (Tally::default(), RunFilter::default());
        loop {
            tally.time(LIST, store.list_runs(&filter, None, 50)).await?;
            if *is_through.borrow() {
                return Fallible::Ok(tally);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut all = Tally::default();
    while let Some(slot) = slots.join_next().await {
        all.add(slot??);
    }
    all.took = began.elapsed();
    through.send_replace(true);
    all.add(lister.await??);
    Ok(all)
}

/// The stores of so many processes; one where processes of other hosts cannot share it.
async fn processes(filled: &FilledStore, count: usize) -> Fallible<Vec<Store>> {
    let mut stores = vec![filled.another_process().await?];
    while filled.store.is_shared() && stores.len() < count {
        stores.push(filled.another_process().await?);
    }
    Ok(stores)
}

async fn slot(store: &Store, number: usize, end: Instant, run_seconds: u64) -> Fallible<Tally> {
    let request = queue::request(number)?;
    let mut tally = Tally::default();
    while Instant::now() < end {
        let began = Instant::now();
        // At the end other slots have what is left. That is no claim.
        let Some(claim) = store.claim(&request).await? else {
            break;
        };
        tally.calls.entry(CLAIM).or_default().push(began.elapsed());
        for second in 1..=run_seconds {
            if Instant::now() >= end {
                return Ok(tally);
            }
            heartbeat(store, &claim, second, &mut tally).await?;
            tally.seconds += 1;
        }
        let spent = Usd::from_nanos(1_000_000);
        let finished = store.finish(&claim, RunOutcomeKind::Done, "", spent);
        held(tally.time(FINISH, finished).await?)?;
        tally.runs += 1;
    }
    Ok(tally)
}

/// What a worker asks of the store in one second of a run.
async fn heartbeat(store: &Store, claim: &QueueClaim, second: u64, tally: &mut Tally) -> Fallible<()> {
    if store.is_shared() {
        tally.time(REQUESTS, store.interventions_for(claim)).await?;
        let file = EventFile {
            name: format!("bench:{}", claim.run),
            mirrored: second * EVENT.len() as u64,
        };
        let events = [EVENT.to_owned()];
        let added = store.add_events(claim, second, &events, &file);
        held(tally.time(EVENTS, added).await?)?;
    }
    if second.is_multiple_of(RENEW_EVERY) {
        let spent = Usd::from_nanos(second * 1_000);
        held(tally.time(RENEW, store.renew(claim, LEASE, spent)).await?)?;
    }
    if second.is_multiple_of(INDEX_EVERY) {
        let row = indexed(claim, second)?;
        tally.time(INDEX, store.index_runs(&[row])).await?;
    }
    Ok(())
}

fn held(state: LeaseState) -> Fallible<()> {
    match state {
        LeaseState::Held => Ok(()),
        LeaseState::Lost => Err("a claim was lost".into()),
    }
}

fn indexed(claim: &QueueClaim, second: u64) -> Fallible<IndexedRun> {
    Ok(IndexedRun {
        id: claim.run.clone(),
        host: "bench".to_owned(),
        created: Timestamp::from_second(1_760_000_000)?,
        updated: Timestamp::now(),
        state: "running".to_owned(),
        reason: None,
        title: "Say hello".to_owned(),
        repository: "/srv/project.git".to_owned(),
        branch: "ralph/say-hello".to_owned(),
        project: None,
        iterations: u32::try_from(second / 30)?,
        checkboxes: 2,
        ticked: 0,
        tokens: second * 100,
        cost: Usd::from_nanos(second * 1_000),
        unpriced_calls: 0,
        worked: Duration::from_secs(second),
        pull_request: None,
    })
}

/// So many runs go on at once, with the times of real ones. Behind them 100,000 wait, and claims are made as often as runs of this
/// length end.
async fn paced(engine: Engine<'_>) -> Fallible<Vec<Curve>> {
    let curve = |kind: &str, what, unit| {
        let name = format!("paced-{kind}-{}", engine.name());
        Curve::new(name, "runs at once, simulated", what, unit)
    };
    let what =
        "The part of the calls of runs that are made in their second. Below 100 the store does not keep up.";
    let mut kept_up = curve("kept-up", what, "%");
    let mut failed = curve("failed", "Runs that got an error of the store.", "runs");
    let mut calls = [CLAIM, RENEW, LIST].map(|call| {
        let what = match call {
            CLAIM => "A claim, while so many runs go on in real time.",
            RENEW => "A renewal of a lease meanwhile.",
            _ => "The newest 50 runs meanwhile.",
        };
        (call, curve(call, what, "ms"))
    });
    for count in quick::pick(&AT_ONCE[..], &QUICK_AT_ONCE[..]) {
        let filled = FilledStore::new(engine).await?;
        filled.queued(quick::pick(100_000, 1_000)).await?;
        filled.running(*count).await?;
        let tally = keep_going(&filled, *count).await?;
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let share = 100.0 * tally.seconds as f64 / (count * WINDOW_SECONDS) as f64;
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        failed.add(*count, Samples::one(tally.failed as f64));
        kept_up.add(*count, Samples::one(share));
        for (call, curve) in &mut calls {
            if let Some(samples) = tally.samples(call) {
                curve.add(*count, samples);
            }
        }
    }
    let mut curves = vec![kept_up, failed];
    curves.extend(calls.map(|(_, curve)| curve));
    Ok(curves)
}

async fn keep_going(filled: &FilledStore, count: u64) -> Fallible<Tally> {
    let stores = processes(filled, SLOTS).await?;
    let begin = Instant::now() + Duration::from_millis(500);
    let end = begin + Duration::from_secs(WINDOW_SECONDS);
    let mut runs = JoinSet::new();
    for number in 0..count {
        let store = stores[usize::try_from(number)? % stores.len()].clone();
        let claim = claim_of(&format!("{}{}", fill::RUNNING, 1_000_001 + number))?;
        // Their seconds do not begin at the same moment, and neither do their renewals.
        let first = begin + Duration::from_micros(number * 1_000_000 / count);
        runs.spawn(async move {
            let mut tally = Tally::default();
            let mut ticks = interval_at(first, Duration::from_secs(1));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut second = number;
            while ticks.tick().await < end && Instant::now() < end {
                second += 1;
                if heartbeat(&store, &claim, second, &mut tally).await.is_err() {
                    tally.failed += 1;
                    break;
                }
                if Instant::now() < end + Duration::from_secs(1) {
                    tally.seconds += 1;
                }
            }
            tally
        });
    }
    let store = filled.another_process().await?;
    runs.spawn(async move {
        let mut tally = Tally::default();
        if look(&store, [begin, end], count, &mut tally).await.is_err() {
            tally.failed += 1;
        }
        tally
    });
    let mut all = Tally::default();
    while let Some(run) = runs.join_next().await {
        all.add(run?);
    }
    Ok(all)
}

/// Claims and lists, at least four times in a second.
async fn look(store: &Store, [begin, end]: [Instant; 2], count: u64, tally: &mut Tally) -> Fallible<()> {
    let (request, filter) = (queue::request(0)?, RunFilter::default());
    let between = Duration::from_secs(RUN_SECONDS) / u32::try_from(count)?;
    let mut ticks = interval_at(begin, between.min(Duration::from_millis(250)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while ticks.tick().await < end && Instant::now() < end {
        let claimed = tally.time(CLAIM, store.claim(&request)).await?;
        let claim = claimed.ok_or("the queue is empty")?;
        held(store.finish(&claim, RunOutcomeKind::Done, "", Usd::ZERO).await?)?;
        tally.time(LIST, store.list_runs(&filter, None, 50)).await?;
    }
    Ok(())
}
