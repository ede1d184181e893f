//! Calls as fast as they can be made, by sixteen at a time: the gateway and LiteLLM in turns.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Fallible;
use super::client::{Client, Way};
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::Stage;

const AT_A_TIME: usize = 16;
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(3);
const QUICK_ROUND: Duration = Duration::from_secs(1);

pub(crate) async fn measure(stage: &Stage) -> Fallible<Figure> {
    let peer = stage.litellm().await?;
    let (mut ours, mut theirs, mut direct) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        ours.push(time_per_call(&stage.ours).await?);
        direct.push(time_per_call(&stage.direct).await?);
        if let Some((_running, way)) = &peer {
            theirs.push(time_per_call(way).await?);
        }
    }
    let [ours, direct] = [ours, direct].map(Samples::from_iter);
    let theirs = (!theirs.is_empty()).then(|| Samples::from_iter(theirs));
    let rate = |samples: &Samples| 1e6 / samples.median();
    println!(
        "streamed calls per second: ours {:.0}, LiteLLM {:.0}, without either {:.0}",
        rate(&ours),
        theirs.as_ref().map_or(0.0, rate),
        rate(&direct)
    );
    Ok(Figure {
        name: "inject-call",
        unit: "us",
        at: MEDIAN,
        ours,
        peer: theirs.map(|theirs| PeerSamples::new("LiteLLM", &theirs)),
        target: Target::Ratio(0.1),
    })
}

/// Microseconds for each call, of all callers together.
async fn time_per_call(way: &Way) -> Fallible<f64> {
    let round = quick::pick(ROUND, QUICK_ROUND);
    let started = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..AT_A_TIME {
        let mut client = Client::connect(way, "hello").await?;
        callers.spawn(async move {
            let mut calls = 0_u32;
            while started.elapsed() < round {
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
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(calls))
}
