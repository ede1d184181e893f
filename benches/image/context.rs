//! Hashing a build context that nothing is remembered of, against `sha256sum` over the same bytes.

use std::path::Path;
use std::time::{Duration, Instant};

use ralph::exec::Command;
use ralph::image::{BuildContext, HashCache};

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::{Stage, write_file};

/// The argument with which this program hashes one context and says how many seconds that took.
pub(crate) const ALONE: &str = "hash-alone";

const FILES: u64 = 250;
const BYTES_EACH: u64 = 2_000_000;
const ROUNDS: usize = 30;

/// Hashes the context in `root` and prints the seconds.
pub(crate) fn hash_alone(root: &Path) -> Fallible<()> {
    // In a directory that is not there, so that nothing is remembered.
    let cache = HashCache::new(root.join("no such directory/\0"), ralph::clock::system());
    let started = Instant::now();
    let digest = BuildContext::read(root, &[], &cache)?.digest();
    println!("{} {digest}", started.elapsed().as_secs_f64());
    Ok(())
}

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Figure>> {
    let root = stage.path("context");
    for number in 0..FILES {
        let path = root.join(format!("dir{}/file{number}", number % 10));
        write_file(&path, number, BYTES_EACH)?;
    }
    let mut samples: [Vec<Duration>; 3] = Default::default();
    for _ in 0..quick::rounds(ROUNDS) {
        samples[0].push(ours(stage, &root, "0").await?);
        samples[1].push(ours(stage, &root, "0,1").await?);
        samples[2].push(sha256sum(stage, &root).await?);
    }
    let [one, two, peer] = samples.map(Samples::milliseconds);
    println!("context of 500 MB, ms: one core {one}; two cores {two}; sha256sum on one core {peer}");
    let figure = |name, ours, target| Figure {
        name,
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("sha256sum on one core", &peer)),
        target: Target::Ratio(target),
    };
    Ok(vec![
        figure("context-hash-one-core", one, 1.2),
        figure("context-hash-two-cores", two, 1.0),
    ])
}

async fn ours(stage: &Stage, root: &Path, cores: &str) -> Fallible<Duration> {
    let this = std::env::current_exe()?;
    let command = Command::new("taskset").args(["--cpu-list", cores]).args([
        this.to_string_lossy(),
        ALONE.into(),
        root.to_string_lossy(),
    ]);
    let (printed, _) = stage.run(&command).await?;
    let seconds = printed.split_whitespace().next().unwrap_or_default();
    Ok(Duration::from_secs_f64(seconds.parse()?))
}

async fn sha256sum(stage: &Stage, root: &Path) -> Fallible<Duration> {
    let all = format!(
        "find {} -type f -exec taskset --cpu-list 0 sha256sum {{}} +",
        root.display()
    );
    Ok(stage.run(&Command::shell(all)).await?.1)
}
