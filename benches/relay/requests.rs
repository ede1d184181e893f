//! What a request takes longer when its connection is relayed.

use ralph::sandbox::Provider;
use ralph::sandbox::docker::SealChoice;

use super::Fallible;
use super::figure::{Figure, MEDIAN, Samples, Target, quick};
use super::sealed::Origin;
use super::stage::Stage;

const TURNS: usize = 20;
/// How many requests the client makes in a turn.
const REQUESTS: usize = 100;
const CONNECTIONS: usize = 20;

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Figure>> {
    let origin = Origin::start().await?;
    let mut sandboxes = Vec::new();
    for seal in [SealChoice::Relayed, SealChoice::Handed] {
        let provider = stage.provider_with(seal);
        sandboxes.push(provider.create(&origin.spec(stage)?).await?);
    }
    let mut figures = Vec::new();
    for (name, task, count) in [
        ("relay-request-added", "requests", REQUESTS),
        ("relay-connection-added", "connections", CONNECTIONS),
    ] {
        let mut times = [Vec::new(), Vec::new()];
        // The first turn finds cold caches.
        for turn in 0..=quick::rounds(TURNS) {
            for (sandbox, times) in sandboxes.iter().zip(&mut times) {
                let measured = origin.client(&**sandbox, task, count).await?;
                times.extend(measured.into_iter().filter(|_| turn > 0));
            }
        }
        let [relayed, handed] = times.map(Samples::from_iter);
        println!("{task}, us: relayed {relayed}; handed {handed}");
        figures.push(Figure {
            name,
            unit: "us",
            at: MEDIAN,
            ours: relayed.added_to(&handed),
            peer: None,
            target: Target::Most(3000.0),
        });
    }
    for sandbox in sandboxes {
        sandbox.close().await?;
    }
    Ok(figures)
}
