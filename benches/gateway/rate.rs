//! How many requests pass when many connections have some at once.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Fallible;
use super::figure::{Figure, Samples, Target};
use super::peers::Peers;
use super::route::Route;

const CONNECTIONS: usize = 32;
const TURN: Duration = Duration::from_secs(2);
const TURNS: usize = 5;

/// They take turns of two seconds. The figure is the time a request takes of the whole, so that less is better.
pub(crate) async fn measure(peers: &Peers) -> Fallible<Vec<Figure>> {
    let routes = [&peers.ours, &peers.squid, &peers.mitmproxy];
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..TURNS {
        for (route, rates) in routes.iter().zip(&mut rates) {
            rates.push(rate(route).await?);
        }
    }
    let [ours, squid, mitmproxy] = rates.map(|rates| rates.into_iter().collect::<Samples>());
    println!("requests a second: ours {ours}; squid {squid}; mitmproxy {mitmproxy}");
    let each = |rate: &Samples| 1e6 / rate.median();
    let figure = |name, peer: &Samples, most| Figure {
        name,
        unit: "us",
        ours: each(&ours),
        peer: Some(each(peer)),
        target: Target::Ratio(most),
    };
    Ok(vec![
        figure("request-to-squid", &squid, 1.0),
        figure("request-to-mitmproxy", &mitmproxy, 0.2),
    ])
}

/// Requests a second.
async fn rate(route: &Route) -> Fallible<f64> {
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
    Ok(f64::from(requests) / started.elapsed().as_secs_f64())
}
