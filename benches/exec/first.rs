//! How long it takes until a first command has run: in a new sandbox, and in one that is there already.

use std::time::Instant;

use ralph::exec::Command;
use ralph::sandbox::Provider;

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::{Stage, exec};

const ROUNDS: usize = 15;

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Figure>> {
    let nothing = Command::new("true");
    let peer = stage.docker(["run", "--rm", stage.image(), "true"]);
    stage.run(&peer).await?;
    let (mut created, mut reused, mut docker_run) = (vec![], vec![], vec![]);
    for _ in 0..quick::rounds(ROUNDS) {
        let (provider, spec) = (stage.provider(), stage.spec());
        let started = Instant::now();
        let sandbox = provider.create(&spec).await?;
        exec(&*sandbox, &nothing).await?;
        created.push(started.elapsed());
        // Closes the session and leaves the container.
        drop(sandbox);

        docker_run.push(stage.run(&peer).await?);

        let provider = stage.provider();
        let started = Instant::now();
        let sandbox = provider.reopen(&spec).await?.ok_or("the sandbox is gone")?;
        exec(&*sandbox, &nothing).await?;
        reused.push(started.elapsed());
        sandbox.close().await?;
    }
    let [created, reused, docker_run] = [created, reused, docker_run].map(Samples::milliseconds);
    println!("first command, ms: new {created}; reused {reused}; docker run {docker_run}");
    let figure = |name, ours, peer, target| Figure {
        name,
        unit: "ms",
        at: MEDIAN,
        ours,
        peer,
        target,
    };
    let peer = PeerSamples::new("docker run", &docker_run);
    Ok(vec![
        figure("first-new", created, Some(peer), Target::Ratio(1.3)),
        figure("first-reused", reused, None, Target::Most(80.0)),
    ])
}
