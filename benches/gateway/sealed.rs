//! How long it takes until a first command has run in a new sandbox, with its network sealed and shown to be.

use std::time::{Duration, Instant};

use ralph::exec::Command;
use ralph::network::{Policy, PolicyRule};
use ralph::sandbox::{Provider, SandboxSpec};

use super::Fallible;
use super::figure::{Figure, MEDIAN, P95, PeerSamples, Samples, Target, quick};
use super::stage::{Stage, exec};

const ROUNDS: usize = 40;

pub(crate) async fn measure() -> Fallible<Vec<Figure>> {
    let stage = Stage::set_up().await?;
    let measured = take_turns(&stage).await;
    stage.tear_down().await?;
    measured
}

/// Measured in turns with `docker run` on the engine's bridge, where nothing is held back and nothing shown.
async fn take_turns(stage: &Stage) -> Fallible<Vec<Figure>> {
    let peer = stage.docker(["run", "--rm", stage.image(), "true"]);
    // The first ones give the engine the holder's image, and find cold caches.
    first_command(stage).await?;
    stage.run(&peer).await?;
    let (mut sealed, mut docker_run) = (vec![], vec![]);
    for _ in 0..quick::rounds(ROUNDS) {
        sealed.push(first_command(stage).await?);
        docker_run.push(stage.run(&peer).await?);
    }
    let [sealed, docker_run] = [sealed, docker_run].map(Samples::milliseconds);
    println!("first command, ms: sealed {sealed}; docker run {docker_run}");
    let figure = |name, at, target| Figure {
        name,
        unit: "ms",
        at,
        ours: sealed.clone(),
        peer: Some(PeerSamples::new("docker run", &docker_run)),
        target,
    };
    Ok(vec![
        figure("sealed-first", MEDIAN, Target::Ratio(1.0)),
        figure("sealed-first-p95", P95, Target::Most(900.0)),
    ])
}

/// Makes a sandbox as a process that has just started would, and runs `true` in it.
async fn first_command(stage: &Stage) -> Fallible<Duration> {
    let (provider, rule) = (stage.provider(), PolicyRule::parse("allowed.example")?);
    let spec = SandboxSpec {
        network: Policy::allowlist([rule]),
        ..stage.spec()
    };
    let started = Instant::now();
    let sandbox = provider.create(&spec).await?;
    exec(&*sandbox, &Command::new("true")).await?;
    let spent = started.elapsed();
    sandbox.close().await?;
    Ok(spent)
}
