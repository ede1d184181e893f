//! Many streams that go on at once.

use super::Fallible;
use super::client::Client;
use super::figure::{Figure, MEDIAN, Samples, Target};
use super::stage::Stage;
use super::upstream::HOLD;

const STREAMS: usize = 200;

pub(crate) async fn measure(stage: &Stage) -> Fallible<Figure> {
    let before = stage.resident()?;
    let words = format!("{HOLD} {}", "word ".repeat(8 * 1024));
    let mut held = Vec::new();
    for _ in 0..STREAMS {
        let mut client = Client::connect(&stage.ours, &words).await?;
        client.begin().await?;
        held.push(client);
    }
    let with = stage.resident()?;
    println!("resident size of the gateway: {before:.1} MB before, {with:.1} MB with {STREAMS} streams");
    Ok(Figure {
        name: "inject-200-streams",
        unit: "MB",
        at: MEDIAN,
        ours: Samples::one(with),
        peer: None,
        target: Target::Most(80.0),
    })
}
