//! Sandboxes of an engine: creating one more, and listing them.

use std::time::Instant;

use ralph::exec::Command;
use ralph::sandbox::{Provider, Sandbox};

use super::Fallible;
use super::engine_stage::{Stage, exec};
use super::figure::curve::Curve;
use super::figure::{Samples, quick};

const SIZES: [u64; 5] = [1, 2, 4, 8, 16];
const QUICK_SIZES: [u64; 3] = [1, 2, 4];
const CREATIONS: usize = 5;
const LISTS: usize = 20;

const AXIS: &str = "sandboxes that run";

pub(crate) async fn measure(stage: &Stage) -> Fallible<Vec<Curve>> {
    let what = "Creating one sandbox in Docker, without a network policy, until its first command has run. It is one of so many.";
    let mut create = Curve::new("create-sandbox", AXIS, what, "ms");
    let what = "Listing them, as `ralph sandbox ls` does.";
    let mut list = Curve::new("list-sandboxes", AXIS, what, "ms");
    let mut live: Vec<Box<dyn Sandbox>> = Vec::new();
    let measured = grow(stage, &mut live, [&mut create, &mut list]).await;
    for sandbox in &live {
        sandbox.close().await?;
    }
    measured?;
    Ok(vec![create, list])
}

async fn grow(
    stage: &Stage,
    live: &mut Vec<Box<dyn Sandbox>>,
    [create, list]: [&mut Curve; 2],
) -> Fallible<()> {
    let provider = stage.provider();
    let nothing = Command::new("true");
    for size in quick::pick(&SIZES[..], &QUICK_SIZES[..]) {
        while (live.len() as u64) < *size {
            live.push(provider.create(&stage.spec()).await?);
        }
        let mut times = Vec::new();
        for _ in 0..quick::rounds(CREATIONS) {
            if let Some(last) = live.pop() {
                last.close().await?;
            }
            let began = Instant::now();
            let sandbox = provider.create(&stage.spec()).await?;
            exec(&*sandbox, &nothing).await?;
            times.push(began.elapsed());
            live.push(sandbox);
        }
        create.add(*size, Samples::milliseconds(times));
        let mut times = Vec::new();
        for _ in 0..quick::rounds(LISTS) {
            let began = Instant::now();
            let found = provider.list().await?;
            times.push(began.elapsed());
            if found.iter().filter(|one| one.is_own).count() as u64 != *size {
                return Err(format!("{} sandboxes instead of {size}", found.len()).into());
            }
        }
        list.add(*size, Samples::milliseconds(times));
    }
    Ok(())
}
