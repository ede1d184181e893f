//! How long a run waits for a worker that is idle.

use std::time::Instant;

use support::postgres::PostgresServer;
use tokio::sync::mpsc;

use super::Fallible;
use super::figure::{Figure, P95, Samples, Target};
use super::queue;

const RUNS: usize = 50;

/// The time from the start of a submission to the claim of a worker that listens, on two connections.
pub(crate) async fn measure(server: &PostgresServer) -> Fallible<Figure> {
    let url = queue::create_database(server, "wake").await?;
    let (submitter, worker) = (queue::open(&url).await?, queue::open(&url).await?);
    let mut signal = worker.listen().await?;
    let (claimed, mut claims) = mpsc::channel(RUNS);
    let working = tokio::spawn(async move {
        let request = queue::request(0)?;
        for _ in 0..RUNS {
            while worker.claim(&request).await?.is_none() {
                signal.wait_for_work().await;
            }
            claimed.send(Instant::now()).await?;
        }
        Fallible::Ok(())
    });
    let mut times = Vec::new();
    for number in 0..RUNS {
        // Not until the worker waits again.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let began = Instant::now();
        submitter.submit(&queue::submission(number)?).await?;
        let Some(at) = claims.recv().await else { break };
        times.push(at.duration_since(began));
    }
    working.await??;
    let samples = Samples::milliseconds(times);
    println!("wake, ms: {samples}");
    Ok(Figure {
        name: "notify-to-start-p95",
        unit: "ms",
        at: P95,
        ours: samples,
        peer: None,
        target: Target::Most(100.0),
    })
}
