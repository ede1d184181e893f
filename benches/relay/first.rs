//! How long it takes until a first command has run in a new sandbox whose network was proven to be sealed.

use std::time::{Duration, Instant};

use ralph::exec::Command;
use ralph::sandbox::Provider;
use ralph::sandbox::docker::SealChoice;

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::sealed::Origin;
use super::stage::{Stage, exec};

const ROUNDS: usize = 20;

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Figure>> {
    let origin = Origin::start().await?;
    let (mut relayed, mut handed) = (vec![], vec![]);
    // The first round gives the engine the image of the holder, and finds cold caches.
    for round in 0..=quick::rounds(ROUNDS) {
        let ours = first_command(stage, &origin, SealChoice::Relayed).await?;
        let peer = first_command(stage, &origin, SealChoice::Handed).await?;
        if round > 0 {
            relayed.push(ours);
            handed.push(peer);
        }
    }
    let [relayed, handed] = [relayed, handed].map(Samples::milliseconds);
    println!("first command, ms: relayed {relayed}; handed {handed}");
    Ok(vec![Figure {
        name: "relay-first",
        unit: "ms",
        at: MEDIAN,
        ours: relayed,
        peer: Some(PeerSamples::new("handed over", &handed)),
        target: Target::Ratio(1.5),
    }])
}

/// Creates a sandbox as a process that has just started would, and runs `true` in it.
async fn first_command(stage: &Stage, origin: &Origin, seal: SealChoice) -> Fallible<Duration> {
    let (provider, spec) = (stage.provider_with(seal), origin.spec(stage)?);
    let started = Instant::now();
    let sandbox = provider.create(&spec).await?;
    exec(&*sandbox, &Command::new("true")).await?;
    let spent = started.elapsed();
    sandbox.close().await?;
    Ok(spent)
}
