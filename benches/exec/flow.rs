//! A gigabyte from a command's standard output.

use ralph::exec::Command;
use ralph::sandbox::Provider;

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::{Stage, exec};

const ROUNDS: usize = 5;
/// A file without content takes no time to read, so that what is measured is the way and not the disk.
const MAKE: [&str; 4] = ["truncate", "-s", "1000000000", "/workspace/gigabyte"];
const PRINT: [&str; 2] = ["cat", "/workspace/gigabyte"];

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Figure>> {
    let sandbox = stage.provider().create(&stage.spec()).await?;
    let of = |line: &[&str]| Command::new(line[0]).args(line[1..].iter().copied());
    exec(&*sandbox, &of(&MAKE)).await?;
    let command = of(&PRINT);
    // Straight to nowhere: to look at what the peer prints would only slow it down.
    let line = format!(
        "exec docker exec {} {} > /dev/null",
        sandbox.id(),
        PRINT.join(" ")
    );
    let peer = Command::shell(line).env("DOCKER_HOST", stage.engine.endpoint().to_string());
    let (mut ours, mut docker_exec) = (vec![], vec![]);
    for _ in 0..quick::rounds(ROUNDS) {
        ours.push(exec(&*sandbox, &command).await?);
        docker_exec.push(stage.run(&peer).await?);
    }
    sandbox.close().await?;
    let [ours, docker_exec] = [ours, docker_exec].map(Samples::milliseconds);
    println!("a gigabyte, ms: ours {ours}; docker exec {docker_exec}");
    Ok(vec![Figure {
        name: "exec-gigabyte",
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("docker exec", &docker_exec)),
        target: Target::Ratio(1.0),
    }])
}
