//! Bytes in both directions: over a relayed connection, over a handed one, and over the engine's own exec stream, which is what
//! carries relayed connections.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ralph::engine::{ContainerExec, ExecOutput, ExecSpec};
use ralph::sandbox::docker::SealChoice;
use ralph::sandbox::{Provider, Sandbox};
use tokio::io::AsyncWriteExt;

use super::Fallible;
use super::client::{PROGRAM, READY, ROLE};
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::sealed::Origin;
use super::stage::Stage;

const TURNS: usize = 7;
const BYTES: usize = 256 << 20;
const CHUNK: usize = 256 << 10;
/// At least 0.7 times the rate.
const TARGET: f64 = 1.43;

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Figure>> {
    let origin = Origin::start().await?;
    let relayed = stage.provider_with(SealChoice::Relayed);
    let relayed = relayed.create(&origin.spec(stage)?).await?;
    let handed = stage.provider_with(SealChoice::Handed);
    let handed = handed.create(&origin.spec(stage)?).await?;
    let mut figures = Vec::new();
    for (name, task) in [("relay-download", "download"), ("relay-upload", "upload")] {
        let [mut by_relay, mut by_hand, mut by_exec] = [vec![], vec![], vec![]];
        for _ in 0..quick::rounds(TURNS) {
            by_relay.extend(origin.client(&*relayed, task, BYTES).await?);
            by_hand.extend(origin.client(&*handed, task, BYTES).await?);
            let spent = match task {
                "download" => into_exec(stage, &*handed).await?,
                _ => out_of_exec(stage, &*handed).await?,
            };
            by_exec.push(spent.as_secs_f64() * 1e6);
        }
        let milliseconds = |times: Vec<f64>| times.into_iter().map(|us| us / 1000.0).collect::<Samples>();
        let [by_relay, by_hand, by_exec] = [by_relay, by_hand, by_exec].map(milliseconds);
        println!(
            "{task} of {} MiB, ms: relayed {by_relay}; handed {by_hand}; the engine's exec stream {by_exec}",
            BYTES >> 20
        );
        figures.push(Figure {
            name,
            unit: "ms",
            at: MEDIAN,
            ours: by_relay,
            peer: Some(PeerSamples::new("the engine's exec stream", &by_exec)),
            target: Target::Ratio(TARGET),
        });
    }
    relayed.close().await?;
    handed.close().await?;
    Ok(figures)
}

/// How long the bytes take into the standard input of a command, from its first output to its end.
async fn into_exec(stage: &Stage, sandbox: &dyn Sandbox) -> Fallible<Duration> {
    let mut exec = start(stage, sandbox, "read", true).await?;
    if next(&mut exec).await?.as_deref() != Some(&[READY]) {
        return Err("the client does not read".into());
    }
    let started = Instant::now();
    let mut stdin = exec.stdin.take().ok_or("no standard input")?;
    let chunk = vec![7; CHUNK];
    for _ in 0..BYTES / CHUNK {
        stdin.write_all(&chunk).await?;
    }
    stdin.flush().await?;
    while next(&mut exec).await?.is_some() {}
    Ok(started.elapsed())
}

/// How long the bytes take out of the standard output of a command, from the first of them.
async fn out_of_exec(stage: &Stage, sandbox: &dyn Sandbox) -> Fallible<Duration> {
    let mut exec = start(stage, sandbox, "write", false).await?;
    let mut received = next(&mut exec).await?.map_or(0, |piece| piece.len());
    let started = Instant::now();
    while let Some(piece) = next(&mut exec).await? {
        received += piece.len();
    }
    if received == BYTES {
        Ok(started.elapsed())
    } else {
        Err(format!("{received} bytes came, not {BYTES}").into())
    }
}

async fn start(stage: &Stage, sandbox: &dyn Sandbox, task: &str, stdin: bool) -> Fallible<ContainerExec> {
    let spec = ExecSpec {
        argv: [PROGRAM, ROLE, task, &BYTES.to_string()]
            .map(str::to_owned)
            .to_vec(),
        env: BTreeMap::new(),
        cwd: None,
        stdin,
    };
    Ok(stage.engine.exec(sandbox.id(), &spec).await?)
}

/// The next piece of the standard output; `None` at its end.
async fn next(exec: &mut ContainerExec) -> Fallible<Option<Bytes>> {
    match exec.next().await.transpose()? {
        None => Ok(None),
        Some(ExecOutput::Stdout(bytes)) => Ok(Some(bytes)),
        Some(ExecOutput::Stderr(bytes) | ExecOutput::Engine(bytes)) => {
            Err(String::from_utf8_lossy(&bytes).into_owned().into())
        }
    }
}
