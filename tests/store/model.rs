//! Random histories of the queue on both engines, against a model that is a list in memory.

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ralph::RunOutcomeKind;
use ralph::store::{ClaimRequest, LeaseState, QueueClaim, QueueRelease, QueueState, Store, Submission};
use ralph::usage::Usd;

use crate::database::{Database, LEASE, labels, request, run, submission};
use crate::need;

const LEASE_SECONDS: i64 = 30;

/// The wait after a failed attempt and before a late start, in seconds.
const DELAY: i64 = 20;

/// Ended runs that are older are removed. Never hit exactly: jumps are by tens of seconds.
const KEPT: i64 = 55;

/// One thing that happens. A claim is chosen among all that were ever made, also those that were lost.
#[derive(Clone, Debug)]
enum Action {
    Submit {
        priority: i64,
        attempts: u32,
        mac: bool,
        late: bool,
    },
    SubmitAgain {
        run: usize,
    },
    Claim {
        worker: usize,
    },
    Renew {
        claim: usize,
    },
    Finish {
        claim: usize,
        paused: bool,
    },
    Release {
        claim: usize,
        why: Why,
    },
    Kill {
        worker: usize,
    },
    Jump {
        seconds: i64,
    },
    Requeue {
        run: usize,
    },
    RemoveEnded,
}

/// Why a worker gives a run back.
#[derive(Clone, Copy, Debug)]
enum Why {
    Shutdown,
    Busy,
    NotStarted,
    Failed,
}

/// The third worker is a Mac.
const WORKERS: usize = 3;

fn action() -> impl Strategy<Value = Action> {
    let any_claim = 0..100_usize;
    prop_oneof![
        4 => (0..3_i64, 1..4_u32, any::<bool>(), prop::bool::weighted(0.2)).prop_map(
            |(priority, attempts, mac, late)| Action::Submit { priority, attempts, mac, late }),
        1 => (0..100_usize).prop_map(|run| Action::SubmitAgain { run }),
        8 => (0..WORKERS).prop_map(|worker| Action::Claim { worker }),
        3 => any_claim.clone().prop_map(|claim| Action::Renew { claim }),
        3 => (any_claim.clone(), any::<bool>()).prop_map(|(claim, paused)| Action::Finish { claim, paused }),
        2 => (any_claim, prop_oneof![Just(Why::Shutdown), Just(Why::Busy), Just(Why::NotStarted), Just(Why::Failed)])
            .prop_map(|(claim, why)| Action::Release { claim, why }),
        1 => (0..WORKERS).prop_map(|worker| Action::Kill { worker }),
        4 => (-2..8_i64).prop_map(|tens| Action::Jump { seconds: tens * 10 }),
        1 => (0..100_usize).prop_map(|run| Action::Requeue { run }),
        1 => Just(Action::RemoveEnded),
    ]
}

/// The time of the model, and the number of the queuing: the clock of the store goes on between two jumps.
type QueueTime = (i64, usize);

/// A row of the model. Times are seconds of a clock that only jumps.
#[derive(Clone, Debug)]
struct Row {
    number: usize,
    mac: bool,
    priority: i64,
    state: QueueState,
    queued_at: QueueTime,
    due_at: i64,
    attempts: u32,
    max_attempts: u32,
    failed_starts: u32,
    epoch: u64,
    owner: Option<usize>,
    ended_at: i64,
}

/// A claim that a worker believes to have.
struct Claimed {
    worker: usize,
    number: usize,
    claim: QueueClaim,
}

#[derive(Default)]
struct Model {
    now: i64,
    submitted: usize,
    queuings: usize,
    floor: u64,
    rows: Vec<Row>,
    claims: Vec<Claimed>,
}

impl Model {
    fn row(&mut self, number: usize) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.number == number)
    }

    /// The row that a worker with this claim may still write to.
    fn held(&mut self, number: usize, epoch: u64) -> Option<&mut Row> {
        self.row(number).filter(|row| row.epoch == epoch)
    }

    fn submit(&mut self, row: Row) -> bool {
        let is_new = self.row(row.number).is_none();
        if is_new {
            self.rows.push(row);
        }
        is_new
    }

    /// The run that the worker gets, with its epoch, attempt and failed starts.
    fn claim(&mut self, worker: usize) -> Option<(usize, u64, u32, u32)> {
        let (now, floor) = (self.now, self.floor);
        loop {
            let active = |row: &&mut Row| matches!(row.state, QueueState::Queued | QueueState::Running);
            let fits = |row: &&mut Row| row.due_at <= now && (!row.mac || worker == 2);
            let due = self.rows.iter_mut().filter(active).filter(fits);
            let row = due.min_by_key(|row| (-row.priority, row.queued_at))?;
            row.epoch = 1 + row.epoch.max(floor);
            if row.attempts < row.max_attempts {
                row.attempts += 1;
                (row.state, row.owner, row.due_at) = (QueueState::Running, Some(worker), now + LEASE_SECONDS);
                return Some((row.number, row.epoch, row.attempts, row.failed_starts));
            }
            (row.state, row.owner, row.ended_at) = (QueueState::NeedsPerson, None, now);
        }
    }

    fn remove_ended(&mut self) -> u64 {
        let (now, before) = (self.now, self.rows.len());
        self.floor = self.rows.iter().map(|row| row.epoch).fold(self.floor, u64::max);
        self.rows
            .retain(|row| row.state != QueueState::Finished || row.ended_at >= now - KEPT);
        (before - self.rows.len()) as u64
    }
}

/// The model and the store, side by side.
struct Pair<'a> {
    model: Model,
    store: &'a Store,
    database: &'a Database,
}

impl Pair<'_> {
    async fn apply(&mut self, action: &Action) {
        match *action {
            Action::Submit {
                priority,
                attempts,
                mac,
                late,
            } => {
                self.model.submitted += 1;
                let row = self.new_row(self.model.submitted, priority, attempts, mac).await;
                self.submit(row, late).await;
            }
            Action::SubmitAgain { run } if self.model.submitted > 0 => {
                let number = 1 + run % self.model.submitted;
                let row = self.new_row(number, 1, 2, false).await;
                self.submit(row, false).await;
            }
            Action::Claim { worker } => self.claim(worker).await,
            Action::Renew { claim } => self.renew(claim).await,
            Action::Finish { claim, paused } => self.finish(claim, paused).await,
            Action::Release { claim, why } => self.release(claim, why).await,
            Action::Kill { worker } => self.model.claims.retain(|claimed| claimed.worker != worker),
            Action::Jump { seconds } => {
                self.model.now += seconds;
                self.database.jump(seconds).await;
            }
            Action::Requeue { run } if self.model.submitted > 0 => {
                self.requeue(1 + run % self.model.submitted).await;
            }
            Action::SubmitAgain { .. } | Action::Requeue { .. } => {}
            Action::RemoveEnded => {
                let age = Duration::from_secs(KEPT.unsigned_abs());
                assert_eq!(
                    self.store.remove_ended(age).await.unwrap(),
                    self.model.remove_ended()
                );
            }
        }
    }

    /// Waits until the store, whose times are exact to a millisecond, has a later time than for the queuing before.
    async fn queue_time(&mut self) -> QueueTime {
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.model.queuings += 1;
        (self.model.now, self.model.queuings)
    }

    async fn new_row(&mut self, number: usize, priority: i64, max_attempts: u32, mac: bool) -> Row {
        Row {
            number,
            mac,
            priority,
            state: QueueState::Queued,
            queued_at: self.queue_time().await,
            due_at: i64::MIN,
            attempts: 0,
            max_attempts,
            failed_starts: 0,
            epoch: 0,
            owner: None,
            ended_at: 0,
        }
    }

    async fn submit(&mut self, mut row: Row, late: bool) {
        if late {
            row.due_at = self.model.now + DELAY;
        }
        let submission = Submission {
            priority: row.priority,
            max_attempts: row.max_attempts,
            labels: labels(if row.mac { &["os=macos"] } else { &[] }),
            not_before: late.then(|| Timestamp::now() + Duration::from_secs(DELAY.unsigned_abs())),
            ..submission(row.number)
        };
        assert_eq!(
            self.store.submit(&submission).await.unwrap(),
            self.model.submit(row)
        );
    }

    async fn claim(&mut self, worker: usize) {
        let offers = if worker == 2 { ["os=macos"] } else { ["os=linux"] };
        let request = ClaimRequest {
            offers: labels(&offers),
            ..request(&worker.to_string())
        };
        let claim = self.store.claim(&request).await.unwrap();
        let got = claim
            .as_ref()
            .map(|claim| (claim.run.clone(), claim.epoch, claim.attempt, claim.failed_starts));
        let expected = self.model.claim(worker);
        assert_eq!(
            got,
            expected.map(|(number, epoch, attempt, starts)| (run(number), epoch, attempt, starts))
        );
        if let (Some(claim), Some((number, ..))) = (claim, expected) {
            self.model.claims.push(Claimed {
                worker,
                number,
                claim,
            });
        }
    }

    /// One of the claims that were made, with the number of its run.
    fn choose(&self, index: usize) -> Option<(usize, QueueClaim)> {
        let claims = &self.model.claims;
        let chosen = claims.get(index % claims.len().max(1))?;
        Some((chosen.number, chosen.claim.clone()))
    }

    async fn renew(&mut self, index: usize) {
        let Some((number, claim)) = self.choose(index) else {
            return;
        };
        let due_at = self.model.now + LEASE_SECONDS;
        let held = self.model.held(number, claim.epoch);
        let held = held
            .filter(|row| row.state == QueueState::Running)
            .map(|row| row.due_at = due_at);
        assert_eq!(
            self.store.renew(&claim, LEASE, Usd::ZERO).await.unwrap(),
            state_of(held)
        );
    }

    async fn finish(&mut self, index: usize, paused: bool) {
        let Some((number, claim)) = self.choose(index) else {
            return;
        };
        let (outcome, state) = if paused {
            (RunOutcomeKind::Paused, QueueState::NeedsPerson)
        } else {
            (RunOutcomeKind::Done, QueueState::Finished)
        };
        let now = self.model.now;
        let held = self.model.held(number, claim.epoch);
        let held = held.filter(|row| row.state != QueueState::Queued);
        let held = held.map(|row| (row.state, row.owner, row.ended_at) = (state, None, now));
        let finished = self.store.finish(&claim, outcome, "", Usd::ZERO).await;
        assert_eq!(finished.unwrap(), state_of(held));
    }

    async fn release(&mut self, index: usize, why: Why) {
        let Some((number, claim)) = self.choose(index) else {
            return;
        };
        let (retry_after, reason) = (Duration::from_secs(DELAY.unsigned_abs()), String::new());
        let (release, counts, delay) = match why {
            Why::Shutdown => (QueueRelease::Shutdown, false, 0),
            Why::Busy => (QueueRelease::Busy { retry_after, reason }, false, DELAY),
            Why::NotStarted => (QueueRelease::NotStarted { retry_after, reason }, false, DELAY),
            Why::Failed => (QueueRelease::Failed { retry_after, reason }, true, DELAY),
        };
        let due_at = self.model.now + delay;
        let held = self.model.held(number, claim.epoch);
        let held = held.filter(|row| row.state == QueueState::Running).map(|row| {
            row.attempts -= u32::from(!counts);
            row.failed_starts += u32::from(matches!(why, Why::NotStarted));
            (row.state, row.owner, row.due_at) = (QueueState::Queued, None, due_at);
        });
        assert_eq!(
            self.store.release(&claim, &release).await.unwrap(),
            state_of(held)
        );
    }

    async fn requeue(&mut self, number: usize) {
        let queued_at = self.queue_time().await;
        let row = self.model.row(number);
        let row = row.filter(|row| matches!(row.state, QueueState::Finished | QueueState::NeedsPerson));
        let found = row.map(|row| {
            (row.state, row.owner, row.attempts, row.failed_starts) = (QueueState::Queued, None, 0, 0);
            (row.queued_at, row.due_at) = (queued_at, i64::MIN);
        });
        assert_eq!(self.store.requeue(&run(number)).await.unwrap(), found.is_some());
    }

    /// Every row of the store is as the model has it.
    async fn compare(&self) {
        let mut rows = self.store.queue().await.unwrap();
        rows.sort_by(|a, b| a.run.cmp(&b.run));
        let stored: Vec<_> = rows
            .into_iter()
            .map(|row| (row.run, row.state, row.attempts, row.epoch, row.owner))
            .collect();
        let mut expected: Vec<_> = self
            .model
            .rows
            .iter()
            .map(|row| {
                let owner = row.owner.map(|worker| worker.to_string());
                (run(row.number), row.state, row.attempts, row.epoch, owner)
            })
            .collect();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(stored, expected);
    }
}

fn state_of(held: Option<()>) -> LeaseState {
    held.map_or(LeaseState::Lost, |()| LeaseState::Held)
}

/// Runs random histories on an empty queue each.
fn check(database: &Database, runtime: &tokio::runtime::Runtime) {
    let store = runtime.block_on(database.open());
    let config = Config {
        cases: 48,
        failure_persistence: None,
        ..Config::default()
    };
    let histories = prop::collection::vec(action(), 1..60);
    let result = TestRunner::new(config).run(&histories, |history| {
        runtime.block_on(async {
            let reset = "DELETE FROM queue; DELETE FROM spending; UPDATE ralph_store SET epoch_floor = 0";
            database.execute(reset).await;
            let mut pair = Pair {
                model: Model::default(),
                store: &store,
                database,
            };
            for action in &history {
                pair.apply(action).await;
                pair.compare().await;
            }
        });
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn sqlite_behaves_like_the_model() {
    check(&Database::sqlite(), &runtime());
}

#[test]
fn postgres_behaves_like_the_model() {
    let runtime = runtime();
    let database = need!(runtime.block_on(Database::postgres()));
    check(&database, &runtime);
}
