//! What a container of its own for evidence adds to an iteration. The runner creates it while the agent works and removes
//! it in the background, so an iteration waits for its proof alone, unless the agent was faster.

use std::time::Instant;

use ralph::exec::Command;
use ralph::network::Policy;
use ralph::sandbox::{Provider, SandboxSpec};

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::{Stage, exec};

const ROUNDS: usize = 15;

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Figure>> {
    let nothing = Command::new("true");
    let run = stage.docker(["run", "--rm", stage.image(), "true"]);
    stage.run(&run).await?;
    let (mut created, mut prepared, mut removed, mut docker_run) = (vec![], vec![], vec![], vec![]);
    let provider = stage.provider();
    let spec = SandboxSpec {
        network: Policy::deny(),
        ..stage.spec()
    };
    let agent = provider.create(&spec).await?;
    for _ in 0..quick::rounds(ROUNDS) {
        let started = Instant::now();
        let sandbox = provider.create_for_evidence(&spec).await?;
        let sandbox = sandbox.ok_or("evidence has no sandbox of its own")?;
        exec(&*sandbox, &nothing).await?;
        created.push(started.elapsed());

        let started = Instant::now();
        sandbox.verify().await?;
        exec(&*sandbox, &nothing).await?;
        prepared.push(started.elapsed());

        let started = Instant::now();
        sandbox.close().await?;
        removed.push(started.elapsed());

        docker_run.push(stage.run(&run).await?);
    }
    agent.close().await?;
    let [created, prepared, removed] = [created, prepared, removed].map(Samples::milliseconds);
    let docker_run = Samples::milliseconds(docker_run);
    println!(
        "a container for evidence, ms: prepared {prepared}; new {created}; removed {removed}; docker run {docker_run}"
    );
    let figure = |name, ours, target| Figure {
        name,
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("docker run", &docker_run)),
        target: Target::Most(target),
    };
    Ok(vec![
        figure("evidence-prepared", prepared, 350.0),
        figure("evidence-new", created, 900.0),
    ])
}
