//! How many requests pass when many connections have some at once.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::peers::Peers;
use super::route::Route;

const CONNECTIONS: usize = 32;
const TURN: Duration = Duration::from_secs(2);
const TURNS: usize = 5;

/// They take turns of two seconds. The figure is the share of time that one request takes, so that less is better.
pub(crate) async fn measure(peers: &Peers) -> Fallible<Vec<Figure>> {
    let routes = [&peers.ours, &peers.squid, &peers.mitmproxy];
    let mut shares = [const { Vec::new() }; 3];
    for _ in 0..quick::rounds(TURNS) {
        for (route, shares) in routes.iter().zip(&mut shares) {
            shares.push(share(route).await?);
        }
    }
    let [ours, squid, mitmproxy] = shares.map(|shares| shares.into_iter().collect::<Samples>());
    println!("of {CONNECTIONS} connections a request, us: ours {ours}; squid {squid}; mitmproxy {mitmproxy}");
    for (name, share) in [("ours", &ours), ("squid", &squid), ("mitmproxy", &mitmproxy)] {
        println!("requests a second, {name}: {:.0}", 1e6 / share.median());
    }
    let figure = |name, peer, most| Figure {
        name,
        unit: "us",
        at: MEDIAN,
        ours: ours.clone(),
        peer: Some(peer),
        target: Target::Ratio(most),
    };
    Ok(vec![
        figure("request-to-squid", PeerSamples::new("squid", &squid), 1.0),
        figure(
            "request-to-mitmproxy",
            PeerSamples::new("mitmproxy", &mitmproxy),
            0.2,
        ),
    ])
}

/// Microseconds for each request, of all connections together.
async fn share(route: &Route) -> Fallible<f64> {
    let mut clients = JoinSet::new();
    let started = Instant::now();
    for _ in 0..CONNECTIONS {
        let mut connection = route.connect().await?;
        clients.spawn(async move {
            let mut count = 0_u32;
            while started.elapsed() < TURN {
                connection.get().await?;
                count += 1;
            }
            Fallible::Ok(count)
        });
    }
    let mut requests = 0;
    for counted in clients.join_all().await {
        requests += counted?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(requests))
}
