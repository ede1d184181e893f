//! Rounds with `ralph submit`: several runs in one queue, and two processes that work on them. One lives as long as the soak; the
//! other one is killed now and then.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use ralph::store::QueueState;

use crate::desk::{Desk, LEASE, host_label};
use crate::fault::Fault;
use crate::footprint::{Footprint, assert_flat};
use crate::model::{assert_nothing_left, assert_repository, assert_undisturbed, steps};
use crate::rounds::{Played, Round, Soak, configure};
use crate::support::postgres::PostgresServer;
use crate::support::ralph::{Live, TIMEOUT, finish};

/// Runs of a round: more than there are workers.
const RUNS: usize = 3;

const CUT_CONNECTIONS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
     WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// A queue, and who works on it.
pub struct Queue {
    desk: Arc<Desk>,
    /// In place of SQLite.
    server: Option<Arc<PostgresServer>>,
    /// Never killed: `ralph serve` on SQLite, and `ralph worker` on Postgres.
    steady: Live,
    /// A `ralph worker` that is killed: with the data directory of the other one on SQLite, and with its own on Postgres.
    other: Live,
    runs: Vec<String>,
    footprints: Vec<Footprint>,
}

impl Queue {
    pub fn start(soak: &Soak, desk: Desk, server: Option<Arc<PostgresServer>>) -> Self {
        let mut steady = if server.is_some() {
            desk.worker("first", &PROVIDERS)
        } else {
            let lease = format!("worker.lease_seconds={}", LEASE.as_secs());
            let listen = format!("unix:{}", socket(&desk).display());
            let args = ["serve", "--workers", "1", "--set", &lease, "--listen", &listen];
            desk.ralph(&[&args[..], &PROVIDERS].concat())
        };
        soak.in_environment(&desk, &mut steady);
        Self {
            steady: Live::start(&mut steady),
            other: start_other(soak, &desk, server.is_some()),
            desk: Arc::new(desk),
            server,
            runs: Vec::new(),
            footprints: Vec::new(),
        }
    }

    pub async fn play(&mut self, soak: &mut Soak, round: &Round) -> Played {
        let mut rng = round.rng();
        configure(&self.desk, round.place);
        let args = ["--label", &host_label(), "--max-attempts", "1000"];
        let runs: Vec<String> = (1..=RUNS)
            .map(|number| self.desk.submit(&steps(number), &args))
            .collect();
        let mut strikes = 0;
        for _ in 0..rng.u32(1..=3) {
            std::thread::sleep(round.place.span().mul_f64(rng.f64()));
            if round.fault != Fault::Nothing {
                strikes += u32::from(self.strike(soak, round.fault, &mut rng).await);
            }
        }
        self.wait_for(&runs, round.fault, strikes).await;
        assert!(self.steady.is_running(), "the long-living process has ended");
        if round.fault == Fault::KillRalph {
            self.prune(soak);
        }
        for run in &runs {
            assert_undisturbed(&self.desk, run, round.fault);
        }
        self.runs.extend(runs);
        assert_repository(&self.desk, &self.runs);
        let (pids, socket) = ([self.steady.pid(), self.other.pid()], socket(&self.desk));
        assert_nothing_left(&self.desk, &pids, &[&socket], soak.engine.as_ref());
        self.footprints.push(Footprint::of(self.steady.pid()));
        assert_flat(self.name(), &self.footprints);
        Played { runs: RUNS, strikes }
    }

    async fn strike(&mut self, soak: &mut Soak, fault: Fault, rng: &mut Rng) -> bool {
        match fault {
            Fault::KillRalph => {
                self.other.signal("KILL");
                self.other = start_other(soak, &self.desk, self.server.is_some());
            }
            Fault::SuspendRalph => {
                let process = if rng.bool() { &self.steady } else { &self.other };
                process.signal("STOP");
                std::thread::sleep(LEASE.mul_f64(2.5 * rng.f64()));
                process.signal("CONT");
            }
            Fault::JumpClock => {
                let expire = "UPDATE queue SET due_at = 0 WHERE state = 'running'";
                self.desk.execute(expire).await;
            }
            Fault::CutConnections => self.desk.execute(CUT_CONNECTIONS).await,
            Fault::RestartPostgres => {
                let before = self.desk.server_start().await;
                self.server.as_ref().unwrap().restart();
                while self
                    .desk
                    .server_start()
                    .await
                    .is_none_or(|now| Some(now) == before)
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            _ => return soak.strike_engine(fault, rng),
        }
        true
    }

    /// Waits until these runs have ended in the queue. Attempts that failed are not repeated after a while but at once.
    /// A run that pauses because of the fault is queued again, as a person would do: a second loss of the sandbox in one iteration
    /// pauses it.
    async fn wait_for(&mut self, runs: &[String], fault: Fault, strikes: u32) {
        let (started, mut paused) = (Instant::now(), 0);
        loop {
            let store = self.desk.store().await;
            let rows = store.queue().await.unwrap();
            store.close().await;
            let own: Vec<_> = rows
                .iter()
                .filter(|row| runs.contains(&row.run.to_string()))
                .collect();
            if own.iter().all(|row| row.state == QueueState::Finished) {
                return;
            }
            for row in own.iter().filter(|row| row.state == QueueState::NeedsPerson) {
                paused += 1;
                let is_expected = fault.may_end_run() && paused <= strikes * u32::try_from(RUNS).unwrap();
                assert!(is_expected, "a person is asked for: {row:#?}");
                let ended = self.desk.run(&["submit", "--run", row.run.as_str()]);
                assert_eq!(ended.code, Some(0), "{ended:?}");
            }
            assert!(started.elapsed() < TIMEOUT, "not done: {own:#?}");
            assert!(self.other.is_running(), "a worker has ended by itself");
            self.desk
                .execute("UPDATE queue SET due_at = 0 WHERE state = 'queued'")
                .await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Removes what a killed worker left. Its next sandbox would do that too, but the run may have gone on with the other worker.
    fn prune(&self, soak: &Soak) {
        let mut command = self.desk.ralph(&["sandbox", "prune"]);
        command.env("RALPH_HOME", self.desk.home(host_of_other(self.server.is_some())));
        soak.in_environment(&self.desk, &mut command);
        finish(&mut command).expect(0, &["Removed"]);
    }

    fn name(&self) -> &'static str {
        if self.server.is_some() {
            "ralph worker on Postgres"
        } else {
            "ralph serve on SQLite"
        }
    }

    pub fn footprints(&self) -> (String, Vec<Footprint>) {
        (self.name().to_owned(), self.footprints.clone())
    }

    /// Ends both processes in an orderly way.
    pub fn end(self) {
        for process in [self.steady, self.other] {
            process.signal("TERM");
            let ended = process.wait();
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
    }

    /// Kills both processes.
    pub fn into_desk(self) -> Arc<Desk> {
        self.desk
    }
}

/// What both processes offer, also if they start while the engine does not answer.
const PROVIDERS: [&str; 4] = ["--label", "provider=local", "--label", "provider=docker"];

fn start_other(soak: &Soak, desk: &Desk, is_postgres: bool) -> Live {
    let mut command = desk.worker(host_of_other(is_postgres), &PROVIDERS);
    soak.in_environment(desk, &mut command);
    Live::start(&mut command)
}

/// Whose data directory the worker has that is killed.
fn host_of_other(is_postgres: bool) -> &'static str {
    if is_postgres { "second" } else { "user" }
}

/// Where `ralph serve` listens.
fn socket(desk: &Desk) -> PathBuf {
    let path: &Path = desk.place.path();
    path.join("api.socket")
}
