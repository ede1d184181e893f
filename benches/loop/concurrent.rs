//! Many runs at once in one process, against the same runs one after the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use ralph::event::NullSink;
use ralph::model::{Script, ScriptedModel};
use ralph::state::RunOutcomeKind;
use serde_json::json;

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target};
use super::program::megabytes;
use super::stage::{self, Stage};

const RUNS: usize = 50;
const FILES: u64 = 100;
const ITERATIONS: u32 = 3;

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Figure>> {
    let at_once = repositories(stage, "at-once").await?;
    let in_turn = repositories(stage, "in-turn").await?;
    let started = Instant::now();
    let runs = try_join_all(at_once.iter().map(|repository| one_run(stage, repository))).await?;
    let ours = started.elapsed();
    let peak = peak_memory()?;
    let started = Instant::now();
    let mut alone = Vec::new();
    for repository in &in_turn {
        alone.push(one_run(stage, repository).await?);
    }
    let peer = started.elapsed();
    println!(
        "a run of three iterations, ms: {RUNS} at once {}; alone {}",
        Samples::milliseconds(runs),
        Samples::milliseconds(alone)
    );
    Ok(vec![
        Figure {
            name: "50-runs-memory",
            unit: "MB",
            at: MEDIAN,
            ours: Samples::one(peak),
            peer: None,
            target: Target::Most(200.0),
        },
        Figure {
            name: "50-runs-time",
            unit: "s",
            at: MEDIAN,
            ours: Samples::one(ours.as_secs_f64()),
            peer: Some(PeerSamples::new(
                "one after the other",
                &Samples::one(peer.as_secs_f64()),
            )),
            target: Target::Ratio(1.0),
        },
    ])
}

async fn repositories(stage: &Stage, name: &str) -> Fallible<Vec<PathBuf>> {
    let mut made = Vec::new();
    for number in 0..RUNS {
        made.push(stage.repository(&format!("{name}-{number}"), FILES).await?);
    }
    Ok(made)
}

/// Two iterations of work and one that ends the task: evidence is gathered and a pull request opened.
async fn one_run(stage: &Stage, repository: &Path) -> Fallible<Duration> {
    let started = Instant::now();
    let work = |number: u64| {
        json!({
            "summary": format!("Step {number}"),
            "actions": [
                {"type": "write", "path": stage::file_name(number), "content": format!("Step {number}.\n")},
                {"type": "commit", "message": format!("Step {number}")},
            ],
        })
    };
    let last = json!({
        "summary": "All done",
        "actions": [{"type": "stop_success", "reason": "All done"}],
        "claims": {"checkboxes_checked": ["M1.1", "M1.2"]},
    });
    let calls = [work(0), work(1), last]
        .map(|answer| json!([{"answer": answer, "tokens": stage::TOKENS, "cost_usd": 0}]));
    let script = Script::parse(&json!({"iterations": calls}).to_string())?;
    let model = Arc::new(ScriptedModel::new(script));
    let ended = stage
        .run(repository, (model, Arc::new(NullSink)), ITERATIONS)
        .await?;
    match ended.kind {
        RunOutcomeKind::Done => Ok(started.elapsed()),
        _ => Err(format!("a run did not get done: {}", ended.reason).into()),
    }
}

/// The most memory that this process ever held, without the commands it started.
fn peak_memory() -> Fallible<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    Ok(line.and_then(megabytes).ok_or("/proc/self/status has no VmHWM")?)
}
