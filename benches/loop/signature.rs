//! What the signature of a failure with a long output costs.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use ralph::exec::{Command, Discard};
use ralph::failure::{FailureSignature, FailureStream};

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::Stage;

const BYTES: usize = 10_000_000;
const TIMES: usize = 30;

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Figure>> {
    let output = output()?;
    let file = stage.path("output.log");
    std::fs::write(&file, &output)?;
    let grep = Command::new("grep")
        .args(["-c", "refused"])
        .arg(file.to_string_lossy());
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..quick::rounds(TIMES) {
        let started = Instant::now();
        let stream = FailureStream::from(output.as_str());
        black_box(FailureSignature::new("check", 1, &stream, &stream));
        ours.push(started.elapsed());
        let started = Instant::now();
        stage.host.run(&grep, &mut Discard).await?;
        peer.push(started.elapsed());
    }
    let (ours, peer) = (Samples::milliseconds(ours), Samples::milliseconds(peer));
    println!("the signature of 10 MB, ms: {ours}; grep {peer}");
    Ok(vec![Figure {
        name: "signature-10mb",
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("grep", &peer)),
        target: Target::Most(50.0),
    }])
}

/// A log with every kind of noise.
fn output() -> Fallible<String> {
    let mut text = String::with_capacity(BYTES + 200);
    let mut number = 0_u32;
    while text.len() < BYTES {
        number += 1;
        writeln!(
            text,
            "2026-01-02 03:04:05.{number:06} host job[{number}]: 0x7f{number:08x} 127.0.0.1:{} refused after {number} ms",
            40_000 + number % 20_000,
        )?;
    }
    Ok(text)
}
