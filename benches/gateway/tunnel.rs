//! Two gigabytes through a CONNECT.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::origin::WANTS_BYTES;
use super::peers::Peers;
use super::route::Route;

const BYTES: usize = 2_000_000_000;
const TURNS: usize = 5;

pub(crate) async fn measure(peers: &Peers) -> Fallible<Vec<Figure>> {
    let routes = [&peers.direct, &peers.ours, &peers.squid];
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..quick::rounds(TURNS) {
        for (route, times) in routes.iter().zip(&mut times) {
            times.push(download(route).await?);
        }
    }
    let [direct, ours, squid] = times.map(Samples::milliseconds);
    println!("two gigabytes, ms: direct {direct}; ours {ours}; squid {squid}");
    Ok(vec![Figure {
        name: "tunnel-2-gb",
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("squid", &squid)),
        // At least 0.9 times the rate.
        target: Target::Ratio(1.11),
    }])
}

async fn download(route: &Route) -> Fallible<Duration> {
    let mut stream = route.tunnel().await?;
    let started = Instant::now();
    stream.write_all(&[WANTS_BYTES]).await?;
    let mut chunk = vec![0; 256 * 1024];
    let mut left = BYTES;
    while left > 0 {
        match stream.read(&mut chunk).await? {
            0 => return Err("the tunnel ended".into()),
            count => left = left.saturating_sub(count),
        }
    }
    Ok(started.elapsed())
}
