//! Claims from a queue of 10,000 runs, against pgbench with a plain claim that skips locked rows.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ralph::RunOutcomeKind;
use ralph::store::{LeaseState, Store};
use ralph::usage::Usd;
use support::postgres::PostgresServer;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Fallible;
use super::figure::{Figure, P95, PeerSamples, Samples, Target};
use super::queue::{self, QUEUED};

const WORKERS: usize = 32;
/// Claims of each worker.
const CLAIMS: usize = 30;
/// What a worker does between two claims. A run takes minutes, so real ones claim far less often.
const WORK: Duration = Duration::from_millis(100);
/// Claims in a second of all workers together, which pgbench makes too.
const RATE: &str = "320";

/// What a plain queue has: no labels, no budgets, no leases.
const PLAIN_TABLE: &str = "
    CREATE TABLE plain (id BIGINT PRIMARY KEY, state TEXT NOT NULL, queued_at BIGINT NOT NULL, request TEXT NOT NULL);
    CREATE INDEX plain_in_order ON plain (queued_at) WHERE state = 'queued';
    INSERT INTO plain SELECT number, 'queued', number, '{}' FROM generate_series(1, 10000) AS number;
    ANALYZE plain;";
const PLAIN_CLAIM: &str = "
    UPDATE plain SET state = 'running' WHERE id = (
      SELECT id FROM plain WHERE state = 'queued' ORDER BY queued_at LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id;";

/// One worker after another on a file.
pub(crate) async fn sqlite() -> Fallible<Figure> {
    let dir = tempfile::tempdir()?;
    let store = queue::open(&queue::sqlite_url(dir.path())).await?;
    queue::fill_sqlite(dir.path()).await?;
    let mut times = Vec::new();
    for number in 0..WORKERS * CLAIMS {
        times.push(claim(&store, number % WORKERS).await?);
    }
    let samples = Samples::milliseconds(times);
    println!("claim-sqlite, ms: {samples}, of {QUEUED} runs");
    Ok(Figure {
        name: "claim-sqlite-p95",
        unit: "ms",
        at: P95,
        ours: samples,
        peer: None,
        target: Target::Most(5.0),
    })
}

/// All workers at once, each with a connection of its own.
pub(crate) async fn postgres(server: &PostgresServer) -> Fallible<Figure> {
    let url = queue::create_database(server, "claims").await?;
    let first = queue::open(&url).await?;
    queue::fill_postgres(&url).await?;
    drop(first);
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let store = queue::open(&url).await?;
        workers.spawn(async move {
            // They do not begin at the same moment.
            sleep(WORK * u32::try_from(worker)? / u32::try_from(WORKERS)?).await;
            let mut times = Vec::new();
            for _ in 0..CLAIMS {
                times.push(claim(&store, worker).await?);
                sleep(WORK).await;
            }
            Fallible::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(worker) = workers.join_next().await {
        times.extend(worker??);
    }
    let (ours, peers) = (Samples::milliseconds(times), pgbench(&url).await?);
    println!("claim-postgres, ms: {ours}, of {QUEUED} runs by {WORKERS} workers; pgbench {peers}");
    Ok(Figure {
        name: "claim-postgres-p95",
        unit: "ms",
        at: P95,
        ours,
        peer: Some(PeerSamples::new("pgbench, a plain SKIP LOCKED claim", &peers)),
        target: Target::Most(10.0),
    })
}

/// Claims and finishes a run. Returns how long the claim took.
async fn claim(store: &Store, worker: usize) -> Fallible<Duration> {
    let request = queue::request(worker)?;
    let began = Instant::now();
    let claimed = store.claim(&request).await?;
    let took = began.elapsed();
    let claimed = claimed.ok_or("the queue is empty")?;
    let finished = store
        .finish(&claimed, RunOutcomeKind::Done, "", Usd::ZERO)
        .await?;
    if finished != LeaseState::Held {
        return Err("a claim was lost".into());
    }
    Ok(took)
}

/// As many plain claims, at the same rate.
async fn pgbench(url: &str) -> Fallible<Samples> {
    let dir = tempfile::tempdir()?;
    let script = dir.path().join("claim.sql");
    std::fs::write(&script, PLAIN_CLAIM)?;
    run(Command::new(program("psql")?).args(["--quiet", "--command", PLAIN_TABLE, url])).await?;
    let mut command = Command::new(program("pgbench")?);
    let (clients, claims) = (WORKERS.to_string(), CLAIMS.to_string());
    command
        .current_dir(dir.path())
        .args(["--no-vacuum", "--log", "--rate", RATE])
        .args(["--client", &clients, "--transactions", &claims]);
    run(command.arg("--file").arg(&script).arg(url)).await?;
    let mut times = Vec::new();
    for entry in std::fs::read_dir(dir.path())? {
        let path = entry?.path();
        if path != script {
            times.extend(pgbench_times(&path)?);
        }
    }
    if times.len() != WORKERS * CLAIMS {
        return Err(format!("pgbench logged {} claims", times.len()).into());
    }
    Ok(times.into_iter().collect())
}

/// The times in a log of pgbench, in milliseconds. The third field is the time since a claim was due, in microseconds, and
/// the seventh the part of it before it began.
fn pgbench_times(log: &Path) -> Fallible<Vec<f64>> {
    let mut times = Vec::new();
    for line in std::fs::read_to_string(log)?.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, _, time, _, _, _, late] = fields[..] else {
            return Err(format!("pgbench logged another line: {line}").into());
        };
        times.push((time.parse::<f64>()? - late.parse::<f64>()?) / 1000.0);
    }
    Ok(times)
}

async fn run(command: &mut Command) -> Fallible<()> {
    let output = command.output().await?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(())
}

/// A program of Postgres. Those of Debian are not all on the PATH.
pub(crate) fn program(name: &str) -> Fallible<PathBuf> {
    let debian = Path::new("/usr/lib/postgresql");
    let mut found: Vec<PathBuf> = match std::fs::read_dir(debian) {
        Ok(versions) => versions
            .map(|version| Ok(version?.path().join("bin").join(name)))
            .collect::<std::io::Result<_>>()?,
        Err(_) => Vec::new(),
    };
    found.retain(|path| path.exists());
    found.sort();
    Ok(found.pop().unwrap_or_else(|| name.into()))
}
