//! What a request takes longer than without anybody between.

use std::time::{Duration, Instant};

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::peers::Peers;
use super::route::Connection;

const WARM_UP: usize = 200;
const REQUESTS: usize = 3000;

/// Each has one connection that is used again; they take turns request by request.
pub(crate) async fn measure(peers: &Peers) -> Fallible<Vec<Figure>> {
    let routes = [&peers.direct, &peers.ours, &peers.squid];
    let mut connections = Vec::new();
    for route in routes {
        connections.push((route.connect().await?, Vec::new()));
    }
    for number in 0..WARM_UP + quick::rounds(REQUESTS) {
        for (connection, times) in &mut connections {
            let time = timed(connection).await?;
            if number >= WARM_UP {
                times.push(time);
            }
        }
    }
    let [direct, ours, squid] = [0, 1, 2].map(|at| microseconds(&connections[at].1));
    println!("a request, us: direct {direct}; ours {ours}; squid {squid}");
    Ok(vec![Figure {
        name: "added-latency",
        unit: "us",
        at: MEDIAN,
        ours: ours.added_to(&direct),
        peer: Some(PeerSamples::new("squid", &squid.added_to(&direct))),
        target: Target::Most(500.0),
    }])
}

async fn timed(connection: &mut Connection) -> Fallible<Duration> {
    let started = Instant::now();
    connection.get().await?;
    Ok(started.elapsed())
}

fn microseconds(times: &[Duration]) -> Samples {
    times.iter().map(|time| time.as_secs_f64() * 1e6).collect()
}
