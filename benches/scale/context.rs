//! The context of an iteration: how long it takes until the model is asked.

use std::sync::Arc;

use super::Fallible;
use super::figure::curve::Curve;
use super::figure::{Samples, quick};
use super::laps::Laps;
use super::stage::{self, Stage};

/// The sizes of the task, in bytes. The prompt is a little longer.
const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const QUICK_SIZES: [usize; 3] = [1_000, 10_000, 100_000];
const FILES: u64 = 100;
const ITERATIONS: u32 = 12;
/// How many iterations at the beginning are not counted.
const WARM_UP: usize = 2;

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Curve>> {
    let what = "From the start of an iteration on 100 files until its model is asked: the clone, the prompt, the run files.";
    let mut asked = Curve::new("prompt", "bytes of the prompt", what, "ms");
    let what = "An iteration with that prompt, on 100 files, without its model.";
    let mut whole = Curve::new("iteration-by-context", "bytes of the prompt", what, "ms");
    for size in quick::pick(&SIZES[..], &QUICK_SIZES[..]) {
        let repository = stage.repository(&format!("context-{size}"), FILES).await?;
        let text = "A paragraph that describes what to do, and why.\n\n";
        let task = stage::task(ITERATIONS) + "\n" + &text.repeat(size / text.len());
        let dir = stage.create(&repository, task).await?;
        let laps = Arc::new(Laps::begin(FILES));
        let mut settings = stage::settings(ITERATIONS)?;
        // A third of it is for the task.
        settings.prompt_bytes = (4 * size).max(200_000);
        stage.drive(&dir, (laps.clone(), laps.clone()), &settings).await?;
        let bytes = laps.prompt_bytes().ok_or("the model was not asked")?;
        asked.add(bytes, laps.until_asked(WARM_UP));
        whole.add(bytes, Samples::milliseconds(laps.iterations(WARM_UP)));
    }
    Ok(vec![asked, whole])
}
