//! Three workers on one Postgres, many runs, and faults at random moments. The runs open pull requests at a GitHub.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use ralph::store::{QueueRow, QueueState, Store};
use serde_json::Value;

use crate::desk::{Desk, LEASE, REPO, host_label};
use crate::need;
use crate::support::postgres::PostgresServer;
use crate::support::ralph::{Live, TIMEOUT, commit, doing, ending, run, script, write};

/// How many runs and how many faults, if the environment does not say so.
const RUNS: usize = 12;
const FAULTS: usize = 40;

/// The host of each worker. Two share one, and with it a data directory.
const HOSTS: [&str; 3] = ["host0", "host0", "host1"];

#[tokio::test(flavor = "multi_thread")]
async fn every_run_is_done_once_whatever_happens_to_workers() {
    let server = Arc::new(need!(PostgresServer::start(&[])));
    let desk = Desk::on(server.clone()).await.with_github("");
    let (runs, faults) = (
        number("RALPH_WORKER_RUNS", RUNS),
        number("RALPH_WORKER_FAULTS", FAULTS),
    );
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut storm = Storm {
        rng: Rng::with_seed(seed),
        workers: HOSTS.iter().map(|host| HostWorker::start(&desk, host)).collect(),
        faults: [0; 2],
    };
    let queue = desk.store().await;
    let (mut submitted, started, mut is_restarted) = (Vec::new(), Instant::now(), false);
    loop {
        let open = unfinished(&queue).await.len();
        let is_over = storm.count() >= faults && submitted.len() >= runs;
        if is_over && open == 0 {
            break;
        }
        // Faults meet work until the last one.
        if !is_over && (submitted.len() < runs || open < HOSTS.len()) {
            submitted.push(desk.submit(&steps(), &["--label", &host_label(), "--max-attempts", "1000"]));
        }
        if storm.count() < faults {
            storm.strike(&desk);
            if !is_restarted && storm.count() >= faults / 2 {
                is_restarted = true;
                let before = desk.server_start().await;
                server.restart();
                while desk.server_start().await.is_none_or(|now| Some(now) == before) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        storm.resume_due();
        assert!(
            started.elapsed() < TIMEOUT + LEASE * 4 * u32::try_from(runs + faults).unwrap(),
            "{:#?}",
            unfinished(&queue).await
        );
        tokio::time::sleep(Duration::from_millis(storm.rng.u64(50..800))).await;
    }
    let [kills, stops] = storm.faults;
    storm.end();
    for run in &submitted {
        assert_undisturbed(&desk, run).await;
    }
    let took = started.elapsed().as_secs();
    println!(
        "{} runs, {kills} kills, {stops} suspensions, {took} s",
        submitted.len()
    );
    let pulls = desk.github.as_ref().unwrap().pulls(REPO);
    assert_eq!(pulls.len(), submitted.len(), "{pulls:#?}");
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
    let (branch, github) = (desk.branch(run), desk.github.as_ref().unwrap());
    let on_github = |args: &[&str]| github.git(REPO, args);
    let subjects = on_github(&["log", "--format=%s", &format!("main..{branch}")]);
    assert_eq!(subjects, "Step 4\nStep 3\nStep 2\nStep 1", "{run}");
    let files = on_github(&["ls-tree", "--name-only", &branch]);
    assert_eq!(files, "README.md\na.txt\nb.txt\ntest.sh", "{run}");
    assert_eq!(on_github(&["show", &format!("{branch}:a.txt")]), "hello 3");
    let journal = desk.journal(run);
    let ends = journal.iter().filter(|line| line["entry"] == "ended").count();
    assert_eq!(ends, 1, "{journal:#?}");
    let tip = on_github(&["rev-parse", &branch]);
    let pulls = github.pulls(REPO);
    let own: Vec<_> = pulls.iter().filter(|pull| pull.head == branch).collect();
    assert_eq!(own.len(), 1, "{run}: {pulls:#?}");
    assert!(own[0].open && !own[0].draft && own[0].head_sha == tip, "{own:#?}");
    // A worker that lost the run would push what the others do not have, or what was there before.
    let pushes = on_github(&["reflog", "show", "--format=%H", &format!("refs/heads/{branch}")]);
    let pushes: Vec<&str> = pushes.lines().rev().collect();
    for (older, newer) in pushes.iter().zip(&pushes[1..]) {
        let between = on_github(&["rev-list", "--count", &format!("{newer}..{older}")]);
        assert_eq!(between, "0", "{run}: {pushes:?}");
    }
    assert_eq!(pushes.last(), Some(&tip.as_str()), "{run}");
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
            Err(error) => assert!(started.elapsed() < TIMEOUT, "{error}"),
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
    host: &'static str,
    process: Live,
    /// When it goes on, if it is suspended.
    resumes: Option<Instant>,
}

impl HostWorker {
    fn start(desk: &Desk, host: &'static str) -> Self {
        Self {
            process: Live::start(&mut desk.worker(host, &["--max", "2"])),
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
            worker.process = Live::start(&mut desk.worker(worker.host, &["--max", "2"]));
            return;
        }
        if is_kill {
            worker.process.signal("KILL");
            worker.process = Live::start(&mut desk.worker(worker.host, &["--max", "2"]));
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
