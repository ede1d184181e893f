//! A run with many iterations behind it: resuming it, its next iteration, and reading what it used.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ralph::runner::Ledger;
use ralph::state::RunDir;
use serde_json::{Value, json};

use super::Fallible;
use super::figure::curve::Curve;
use super::figure::{Samples, quick};
use super::laps::Laps;
use super::stage::{self, Stage};

const SIZES: [u32; 4] = [10, 100, 1_000, 5_000];
const QUICK_SIZES: [u32; 3] = [10, 100, 1_000];
const FILES: u64 = 100;
/// How many iterations are added to those that are there.
const ADDED: u32 = 12;
/// Of them, so many at the beginning are not counted.
const WARM_UP: usize = 2;
const READS: usize = 20;
/// How many runs of each size are resumed.
const ROUNDS: usize = 3;

const AXIS: &str = "iterations of the run";

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Curve>> {
    let what = "An iteration of a run whose journal has so many iterations, on 100 files, without its model.";
    let mut next = Curve::new("iteration-of-long-run", AXIS, what, "ms");
    let what = "Resuming that run, until its next iteration starts.";
    let mut resume = Curve::new("resume", AXIS, what, "ms");
    let what = "Reading its journal and adding up what it used, as each renewal of its lease does.";
    let mut read = Curve::new("read-usage", AXIS, what, "ms");
    for size in quick::pick(&SIZES[..], &QUICK_SIZES[..]) {
        let (mut firsts, mut iterations) = (Vec::new(), Vec::new());
        for round in 0..quick::pick(ROUNDS, 1) {
            let dir = long_run(stage, *size, round).await?;
            if round == 0 {
                read.add(u64::from(*size), read_times(&dir)?);
            }
            let laps = resumed(stage, &dir, size + ADDED).await?;
            firsts.push(laps.until_first().ok_or("the long run did not go on")?);
            iterations.extend(laps.iterations(WARM_UP));
        }
        resume.add(u64::from(*size), Samples::milliseconds(firsts));
        next.add(u64::from(*size), Samples::milliseconds(iterations));
    }
    Ok(vec![next, resume, read])
}

async fn resumed(stage: &Stage, dir: &RunDir, limit: u32) -> Fallible<Arc<Laps>> {
    let laps = Arc::new(Laps::begin(FILES));
    let settings = stage::settings(limit)?;
    let ended = stage.drive(dir, (laps.clone(), laps.clone()), &settings).await?;
    if ended.used.iterations < limit {
        return Err(format!("the long run ended early: {}", ended.reason).into());
    }
    Ok(laps)
}

fn read_times(dir: &RunDir) -> Fallible<Samples> {
    let mut times = Vec::new();
    for _ in 0..quick::rounds(READS) {
        let began = Instant::now();
        black_box(Ledger::from_journal(&dir.journal()?, Duration::ZERO));
        times.push(began.elapsed());
    }
    Ok(Samples::milliseconds(times))
}

/// A run that ended after two iterations, whose journal then gets copies of the second one.
async fn long_run(stage: &Stage, iterations: u32, round: usize) -> Fallible<RunDir> {
    let repository = stage
        .repository(&format!("long-{iterations}-{round}"), FILES)
        .await?;
    let dir = stage.create(&repository, stage::task(2)).await?;
    let laps = Arc::new(Laps::begin(FILES));
    stage
        .drive(&dir, (laps.clone(), laps.clone()), &stage::settings(2)?)
        .await?;
    let path = dir.journal_file();
    let text = std::fs::read_to_string(&path)?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let from = lines
        .iter()
        .position(|line| line["entry"] == "iteration_started" && line["iteration"] == 2)
        .ok_or("the journal has no second iteration")?;
    let to = lines
        .iter()
        .position(|line| line["entry"] == "recorded" && line["iteration"] == 2)
        .ok_or("the journal has no record of it")?;
    let mut all = text;
    let mut seq = lines.len();
    for iteration in 3..=iterations {
        for line in &lines[from..=to] {
            let mut line = line.clone();
            seq += 1;
            line["seq"] = json!(seq);
            for name in ["iteration", "call"] {
                if line.get(name).is_some() {
                    line[name] = json!(iteration);
                }
            }
            all.push_str(&line.to_string());
            all.push('\n');
        }
    }
    std::fs::write(&path, all)?;
    Ok(dir)
}
