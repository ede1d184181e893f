//! How long it takes until a first command has run: in a new sandbox, and in one that is there already. The `docker` command does the
//! same in turns.

use std::time::Instant;

use ralph::exec::Command;
use ralph::sandbox::Provider;

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::{Stage, exec};

const ROUNDS: usize = 15;

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Figure>> {
    let nothing = Command::new("true");
    let run = stage.docker(["run", "--rm", stage.image(), "true"]);
    stage.run(&run).await?;
    let (mut created, mut reused) = (vec![], vec![]);
    let (mut docker_run, mut docker_exec) = (vec![], vec![]);
    for _ in 0..quick::rounds(ROUNDS) {
        let (provider, spec) = (stage.provider(), stage.spec());
        let started = Instant::now();
        let sandbox = provider.create(&spec).await?;
        exec(&*sandbox, &nothing).await?;
        created.push(started.elapsed());
        // Closes the session and leaves the container.
        drop(sandbox);

        docker_run.push(stage.run(&run).await?);

        let provider = stage.provider();
        let started = Instant::now();
        let sandbox = provider.reopen(&spec).await?.ok_or("the sandbox is gone")?;
        exec(&*sandbox, &nothing).await?;
        reused.push(started.elapsed());

        let exec = stage.docker(["exec", sandbox.id(), "true"]);
        docker_exec.push(stage.run(&exec).await?);
        sandbox.close().await?;
    }
    let [created, reused] = [created, reused].map(Samples::milliseconds);
    let [docker_run, docker_exec] = [docker_run, docker_exec].map(Samples::milliseconds);
    println!("first command, ms: new {created}; docker run {docker_run}");
    println!("first command, ms: reused {reused}; docker exec {docker_exec}");
    let figure = |name, ours, peer, target| Figure {
        name,
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(peer),
        target,
    };
    let docker_run = PeerSamples::new("docker run", &docker_run);
    let docker_exec = PeerSamples::new("docker exec", &docker_exec);
    Ok(vec![
        figure("first-new", created, docker_run, Target::Ratio(1.3)),
        figure("first-reused", reused, docker_exec, Target::Most(80.0)),
    ])
}
