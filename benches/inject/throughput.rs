//! Calls as fast as they can be made, by sixteen at a time: the gateway and LiteLLM in turns.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Fallible;
use super::client::{Client, Way};
use super::figure::{Figure, Target};
use super::stage::Stage;

const AT_A_TIME: usize = 16;
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(3);

pub(crate) async fn measure(stage: &Stage) -> Fallible<Figure> {
    let peer = stage.litellm().await?;
    let (mut ours, mut theirs, mut direct) = (0.0, 0.0, 0.0);
    for _ in 0..ROUNDS {
        ours += per_second(&stage.ours).await?;
        direct += per_second(&stage.direct).await?;
        if let Some((_running, way)) = &peer {
            theirs += per_second(way).await?;
        }
    }
    let mean = |sum: f64| sum / f64::from(u32::try_from(ROUNDS).unwrap_or(1));
    let (ours, theirs, direct) = (mean(ours), mean(theirs), mean(direct));
    println!("streamed calls per second: ours {ours:.0}, LiteLLM {theirs:.0}, without either {direct:.0}");
    let microseconds = |rate: f64| 1e6 / rate;
    Ok(Figure {
        name: "inject-call",
        unit: "us",
        ours: microseconds(ours),
        peer: peer.is_some().then(|| microseconds(theirs)),
        target: Target::Ratio(0.1),
    })
}

async fn per_second(way: &Way) -> Fallible<f64> {
    let started = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..AT_A_TIME {
        let mut client = Client::connect(way, "hello").await?;
        callers.spawn(async move {
            let mut calls = 0_u32;
            while started.elapsed() < ROUND {
                client.call().await?;
                calls += 1;
            }
            Fallible::Ok(calls)
        });
    }
    let mut calls = 0;
    while let Some(done) = callers.join_next().await {
        calls += done??;
    }
    Ok(f64::from(calls) / started.elapsed().as_secs_f64())
}
