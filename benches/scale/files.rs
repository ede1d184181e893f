//! Files of the repository: an iteration, and the start of a run.

use std::sync::Arc;

use super::Fallible;
use super::figure::curve::Curve;
use super::figure::{Samples, quick};
use super::laps::Laps;
use super::stage::Stage;

const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 500_000];
const QUICK_SIZES: [u64; 3] = [100, 1_000, 10_000];
const ITERATIONS: u32 = 10;
/// How many iterations at the beginning are not counted: they find cold caches.
const WARM_UP: usize = 2;

const AXIS: &str = "files of the repository";

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Curve>> {
    let what = "An iteration that changes one file, without its model.";
    let mut iteration = Curve::new("iteration-by-files", AXIS, what, "ms");
    let what = "From the start of a run until its first iteration starts: the private clone and its sandbox.";
    let mut start = Curve::new("start-by-files", AXIS, what, "ms");
    for size in quick::pick(&SIZES[..], &QUICK_SIZES[..]) {
        let repository = stage.repository(&format!("files-{size}"), *size).await?;
        let laps = Arc::new(Laps::begin(*size));
        let ended = stage
            .run(&repository, (laps.clone(), laps.clone()), ITERATIONS)
            .await?;
        if ended.used.iterations != ITERATIONS {
            return Err(format!("the run ended early: {}", ended.reason).into());
        }
        let first = laps.until_first().ok_or("the run did not start")?;
        start.add(*size, Samples::milliseconds([first]));
        iteration.add(*size, Samples::milliseconds(laps.iterations(WARM_UP)));
        // The next one needs the disk.
        for path in [repository, stage.path("runs")] {
            std::fs::remove_dir_all(path)?;
        }
    }
    Ok(vec![iteration, start])
}
