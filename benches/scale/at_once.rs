//! Runs at once in one process: how long they take together, and how much memory the process has.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;

use super::Fallible;
use super::figure::curve::Curve;
use super::figure::{Samples, quick};
use super::laps::Laps;
use super::stage::Stage;

const SIZES: [usize; 5] = [1, 2, 4, 8, 16];
const QUICK_SIZES: [usize; 3] = [1, 2, 4];
const FILES: u64 = 100;
const ITERATIONS: u32 = 3;
const ROUNDS: usize = 3;

const AXIS: &str = "runs at once";

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Curve>> {
    let what = "Runs of three iterations on 100 files, at once in one process, until all have ended.";
    let mut time = Curve::new("runs-at-once-time", AXIS, what, "s");
    let what = "The most memory of that process meanwhile, without the commands that it starts.";
    let mut memory = Curve::new("runs-at-once-memory", AXIS, what, "MB");
    for size in quick::pick(&SIZES[..], &QUICK_SIZES[..]) {
        let (mut times, mut peaks) = (Vec::new(), Vec::new());
        for round in 0..quick::pick(ROUNDS, 1) {
            let mut repositories = Vec::new();
            for number in 0..*size {
                let name = format!("at-once-{size}-{round}-{number}");
                repositories.push(stage.repository(&name, FILES).await?);
            }
            // Forgets the highest size so far.
            std::fs::write("/proc/self/clear_refs", "5")?;
            let began = Instant::now();
            try_join_all(repositories.iter().map(|path| one_run(stage, path))).await?;
            times.push(began.elapsed().as_secs_f64());
            peaks.push(peak_memory()?);
        }
        time.add(*size as u64, times.into_iter().collect());
        memory.add(*size as u64, peaks.into_iter().collect::<Samples>());
    }
    Ok(vec![time, memory])
}

async fn one_run(stage: &Stage, repository: &Path) -> Fallible<()> {
    let laps = Arc::new(Laps::begin(FILES));
    let ended = stage
        .run(repository, (laps.clone(), laps.clone()), ITERATIONS)
        .await?;
    match ended.used.iterations {
        ITERATIONS => Ok(()),
        _ => Err(format!("a run ended early: {}", ended.reason).into()),
    }
}

/// In megabytes.
fn peak_memory() -> Fallible<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kilobytes: f64 = kilobytes
        .ok_or("/proc/self/status has no VmHWM")?
        .trim()
        .parse()?;
    Ok(kilobytes / 1024.0)
}
