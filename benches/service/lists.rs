//! The list of 10,000 runs, and a run with 5,000 iterations.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::Fallible;
use super::figure::{Figure, P95, Samples, Target, quick};
use super::many_runs::{ITERATIONS, ManyRuns, RUNS};

/// Requests of each kind.
const REQUESTS: usize = 200;

pub(crate) async fn measure(service: &ManyRuns) -> Fallible<Vec<Figure>> {
    let client = reqwest::Client::new();
    let began = Instant::now();
    service.get(&client, "/api/runs").await?;
    println!("first list after the start, ms: {}", began.elapsed().as_millis());
    let first = times(service, &client, "/api/runs?limit=50").await?;
    let page = service.get(&client, "/api/runs?limit=200").await?;
    let middle = format!("/api/runs?limit=50&after={}", text(&page["next"])?);
    let deep = times(service, &client, &middle).await?;
    let searched = times(service, &client, "/api/runs?limit=50&text=no+such+title").await?;
    println!("list of {RUNS}, ms: first page {first}; a later page {deep}; a text that none has {searched}");
    let run = &service.longest;
    let status = times(service, &client, &format!("/api/runs/{run}")).await?;
    let last = format!("/api/runs/{run}/iterations?after={}", ITERATIONS - 50);
    let iterations = times(service, &client, &last).await?;
    println!("run with {ITERATIONS} iterations, ms: state {status}; its last page {iterations}");
    let figure = |name, ours| Figure {
        name,
        unit: "ms",
        at: P95,
        ours,
        peer: None,
        target: Target::Most(50.0),
    };
    Ok(vec![
        figure("list-10000-runs-p95", slowest([first, deep, searched])?),
        figure("run-5000-iterations-p95", slowest([status, iterations])?),
    ])
}

/// The samples with the highest 95th percentile.
fn slowest<const N: usize>(all: [Samples; N]) -> Fallible<Samples> {
    let slowest = all
        .into_iter()
        .max_by(|one, other| one.p95().total_cmp(&other.p95()));
    Ok(slowest.ok_or("nothing was measured")?)
}

async fn times(service: &ManyRuns, client: &reqwest::Client, path: &str) -> Fallible<Samples> {
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..quick::rounds(REQUESTS) {
        let began = Instant::now();
        service.get(client, path).await?;
        times.push(began.elapsed());
        // Requests come over time, between the looks of the service.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(Samples::milliseconds(times))
}

fn text(value: &Value) -> Fallible<&str> {
    Ok(value.as_str().ok_or("there is no next page")?)
}
