//! One command after the other, each by three ways in turn: the session, the engine's own exec, and the `docker` command.

use std::time::{Duration, Instant};

use ralph::engine::{ExecSpec, ExecState};
use ralph::exec::Command;
use ralph::sandbox::Provider;

use super::Fallible;
use super::figure::{Figure, MEDIAN, P95, PeerSamples, Samples, Target, quick};
use super::stage::{Stage, exec};

/// How often each of the slow ways is taken, and the session between two of those.
const ROUNDS: usize = 40;
const PER_ROUND: usize = 10;

/// How long the session is left alone before it is used again.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Figure>> {
    let sandbox = stage.provider().create(&stage.spec()).await?;
    let nothing = Command::new("true");
    let cli = stage.docker(["exec", sandbox.id(), "true"]);
    // The first ones find cold caches, and open the session.
    exec(&*sandbox, &nothing).await?;
    stage.run(&cli).await?;
    by_api(stage, sandbox.id()).await?;
    let (mut ours, mut after_a_pause, mut api, mut by_cli) = (vec![], vec![], vec![], vec![]);
    for _ in 0..quick::rounds(ROUNDS) {
        for _ in 0..PER_ROUND {
            ours.push(exec(&*sandbox, &nothing).await?);
        }
        api.push(by_api(stage, sandbox.id()).await?);
        by_cli.push(stage.run(&cli).await?);
        tokio::time::sleep(PAUSE).await;
        after_a_pause.push(exec(&*sandbox, &nothing).await?);
    }
    sandbox.close().await?;
    let [ours, after_a_pause, api, by_cli] = [ours, after_a_pause, api, by_cli].map(Samples::milliseconds);
    println!("round trip, ms: ours {ours}; the engine's exec {api}; docker exec {by_cli}");
    println!("after a pause, ms: {after_a_pause}");
    let figure = |name, at, ours: &Samples, peer, target| Figure {
        name,
        unit: "ms",
        at,
        ours: ours.clone(),
        peer,
        target,
    };
    let cli = || Some(PeerSamples::new("docker exec", &by_cli));
    let api = PeerSamples::new("the engine's exec API", &api);
    Ok(vec![
        figure("exec-cli", MEDIAN, &ours, cli(), Target::Ratio(0.02)),
        figure("exec-api", MEDIAN, &ours, Some(api), Target::Ratio(0.033)),
        figure("exec-median", MEDIAN, &ours, cli(), Target::Most(1.5)),
        figure("exec-p95", P95, &ours, cli(), Target::Most(1.5)),
        figure("exec-reused", MEDIAN, &after_a_pause, cli(), Target::Most(5.0)),
    ])
}

/// How long the engine's own exec takes, with the question for the exit code, which every caller asks.
async fn by_api(stage: &Stage, container: &str) -> Fallible<Duration> {
    let spec = ExecSpec {
        argv: vec!["true".to_owned()],
        env: std::collections::BTreeMap::new(),
        cwd: None,
        stdin: false,
    };
    let started = Instant::now();
    let mut exec = stage.engine.exec(container, &spec).await?;
    while let Some(piece) = exec.next().await {
        piece?;
    }
    let ended = exec.state().await?;
    let spent = started.elapsed();
    match ended {
        ExecState::Exited(0) => Ok(spent),
        other => Err(format!("`true` ended as {other:?}").into()),
    }
}
