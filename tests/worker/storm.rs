//! Three workers on one Postgres, many runs, and faults at random moments.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use ralph::store::{QueueRow, QueueState, Store};
use serde_json::Value;

use crate::desk::{Desk, LEASE, host_label};
use crate::need;
use crate::support::postgres::PostgresServer;
use crate::support::ralph::{Live, PATIENCE, commit, doing, ending, run, script, write};

/// How many runs and how many faults, if the environment does not say so.
const RUNS: usize = 6;
const FAULTS: usize = 12;

const WORKERS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn every_run_is_done_once_whatever_happens_to_workers() {
    let server = Arc::new(need!(PostgresServer::start(&[])));
    let desk = Desk::on(server.clone()).await;
    let (runs, faults) = (
        number("RALPH_WORKER_RUNS", RUNS),
        number("RALPH_WORKER_FAULTS", FAULTS),
    );
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut weather = Storm {
        rng: Rng::with_seed(seed),
        workers: (0..WORKERS)
            .map(|number| HostWorker::start(&desk, number))
            .collect(),
        faults: [0; 2],
    };
    let store = desk.store().await;
    let (mut submitted, started, mut is_restarted) = (Vec::new(), Instant::now(), false);
    loop {
        let open = unfinished(&store).await.len();
        let is_over = weather.count() >= faults && submitted.len() >= runs;
        if is_over && open == 0 {
            break;
        }
        // Faults meet work until the last one.
        if !is_over && (submitted.len() < runs || open < WORKERS) {
            submitted.push(desk.submit(&steps(), &["--label", &host_label(), "--max-attempts", "1000"]));
        }
        if weather.count() < faults {
            weather.strike(&desk);
            if !is_restarted && weather.count() >= faults / 2 {
                is_restarted = true;
                let before = desk.server_start().await;
                server.restart();
                while desk.server_start().await.is_none_or(|now| Some(now) == before) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        weather.resume_due();
        assert!(
            started.elapsed() < PATIENCE + LEASE * 4 * u32::try_from(runs + faults).unwrap(),
            "{:#?}",
            unfinished(&store).await
        );
        tokio::time::sleep(Duration::from_millis(weather.rng.u64(50..800))).await;
    }
    let [kills, stops] = weather.faults;
    weather.end();
    for run in &submitted {
        assert_undisturbed(&desk, run).await;
    }
    let took = started.elapsed().as_secs();
    println!(
        "{} runs, {kills} kills, {stops} suspensions, {took} s",
        submitted.len()
    );
    let branches = desk
        .place
        .git(&["for-each-ref", "--format=%(refname)", "refs/heads/ralph/"]);
    assert_eq!(branches.lines().count(), submitted.len(), "{branches}");
    assert_eq!(desk.processes(), [""; 0]);
}

/// Four iterations, each with a commit of its own.
fn steps() -> Value {
    let step = |number: u32| {
        doing([
            run("sleep 0.4"),
            write("a.txt", &format!("hello {number}\n")),
            commit(&format!("Step {number}")),
        ])
    };
    let last = ending([write("b.txt", "hello\n"), commit("Step 4")]);
    script([step(1), step(2), step(3), last])
}

/// The run has the result of one that nothing happened to.
async fn assert_undisturbed(desk: &Desk, run: &str) {
    let row = desk.row(run).await;
    assert_eq!(
        (row.state, row.outcome.as_deref()),
        (QueueState::Finished, Some("done")),
        "{row:?}"
    );
    assert_eq!(desk.recorded(run), [1, 2, 3, 4], "{run}");
    assert_eq!(
        desk.subjects(run),
        ["Step 4", "Step 3", "Step 2", "Step 1"],
        "{run}"
    );
    let branch = desk.branch(run);
    assert_eq!(
        desk.place.git(&["ls-tree", "--name-only", &branch]),
        "README.md\na.txt\nb.txt\ntest.sh\n"
    );
    assert_eq!(desk.place.git(&["show", &format!("{branch}:a.txt")]), "hello 3\n");
    let journal = desk.journal(run);
    let count = |entry: &str| journal.iter().filter(|line| line["entry"] == entry).count();
    assert_eq!(count("ended"), 1, "{journal:#?}");
    let tip = desk.place.git(&["rev-parse", &branch]);
    let published = journal.iter().filter(|line| line["entry"] == "pull_request");
    for line in published {
        assert_eq!(line["commit"], tip.trim(), "{line}");
    }
}

async fn unfinished(store: &Store) -> Vec<QueueRow> {
    let started = Instant::now();
    loop {
        match store.queue().await {
            Ok(mut rows) => {
                rows.retain(|row| row.state != QueueState::Finished);
                return rows;
            }
            // Postgres restarts.
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn number(variable: &str, default: usize) -> usize {
    let value = std::env::var(variable).ok();
    value.map_or(default, |value| value.parse().unwrap())
}

/// One of the hosts: its worker is started again when it is killed.
struct HostWorker {
    host: String,
    process: Live,
    /// When it goes on, if it is suspended.
    resumes: Option<Instant>,
}

impl HostWorker {
    fn start(desk: &Desk, number: usize) -> Self {
        let host = format!("host{number}");
        Self {
            process: Live::start(&mut desk.worker(&host, &["--max", "2"])),
            host,
            resumes: None,
        }
    }
}

struct Storm {
    rng: Rng,
    workers: Vec<HostWorker>,
    /// Kills and suspensions.
    faults: [usize; 2],
}

impl Storm {
    fn count(&self) -> usize {
        self.faults.iter().sum()
    }

    /// Kills or suspends a worker that works.
    fn strike(&mut self, desk: &Desk) {
        let chosen = self.rng.usize(..self.workers.len());
        let is_kill = self.rng.bool();
        let worker = &mut self.workers[chosen];
        if worker.resumes.is_some() {
            return;
        }
        if !worker.process.is_running() {
            // It began while Postgres did not answer. A scheduler starts it again.
            worker.process = Live::start(&mut desk.worker(&worker.host, &["--max", "2"]));
            return;
        }
        if is_kill {
            worker.process.signal("KILL");
            worker.process = Live::start(&mut desk.worker(&worker.host, &["--max", "2"]));
            self.faults[0] += 1;
        } else {
            worker.process.signal("STOP");
            let share = self.rng.f64() * 2.5;
            worker.resumes = Some(Instant::now() + LEASE.mul_f64(share));
            self.faults[1] += 1;
        }
    }

    fn resume_due(&mut self) {
        for worker in &mut self.workers {
            if worker.resumes.is_some_and(|at| at <= Instant::now()) {
                worker.process.signal("CONT");
                worker.resumes = None;
            }
        }
    }

    /// Ends all workers in an orderly way.
    fn end(self) {
        for worker in &self.workers {
            worker.process.signal("CONT");
            worker.process.signal("TERM");
        }
        for worker in self.workers {
            let ended = worker.process.wait();
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
    }
}
