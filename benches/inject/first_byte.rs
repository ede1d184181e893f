//! One call after the other, by the gateway and around it in turns.

use super::Fallible;
use super::client::Client;
use super::figure::{Figure, MEDIAN, Samples, Target, quick};
use super::stage::Stage;

const CALLS: usize = 2000;
/// The first ones find cold caches.
const WARM_UP: usize = 100;

pub(crate) async fn measure(stage: &Stage) -> Fallible<Figure> {
    // As long as a small prompt of an agent's.
    let words = "word ".repeat(8 * 1024);
    let mut direct = Client::connect(&stage.direct, &words).await?;
    let mut ours = Client::connect(&stage.ours, &words).await?;
    let (mut around, mut through) = (Vec::new(), Vec::new());
    for _ in 0..WARM_UP + quick::rounds(CALLS - WARM_UP) {
        around.push(direct.call().await?);
        through.push(ours.call().await?);
    }
    let [around, through] =
        [around, through].map(|taken| Samples::milliseconds(taken.into_iter().skip(WARM_UP)));
    let (without, with) = (around.median(), through.median());
    println!(
        "first byte of a call of 40 kB, ms: {without:.3} without the gateway, {with:.3} with it (medians)"
    );
    Ok(Figure {
        name: "inject-first-byte",
        unit: "us",
        at: MEDIAN,
        ours: through.added_to(&around).map(|ms| ms * 1000.0),
        peer: None,
        target: Target::Most(500.0),
    })
}
