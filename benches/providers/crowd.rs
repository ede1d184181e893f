//! The memory of one process that drives 200 sandboxes at Daytona, each with a command that runs.

use std::time::Instant;

use futures_util::future::try_join_all;
use ralph::exec::{Command, Discard};
use ralph::sandbox::Provider;
use ralph::sandbox::daytona::DaytonaProvider;
use tokio::sync::{Barrier, Semaphore};

use super::Fallible;
use super::figure::{Figure, MEDIAN, Samples, Target};
use super::serve::Served;

const SANDBOXES: usize = 200;
/// How many are created at once: this host creates them.
const MAKERS: usize = 16;

pub(crate) async fn measure(daytona: &Served) -> Fallible<Vec<Figure>> {
    let provider = &DaytonaProvider::new(daytona.options());
    let (makers, all_there) = (&Semaphore::new(MAKERS), &Barrier::new(SANDBOXES));
    let started = Instant::now();
    let work = (0..SANDBOXES).map(|number| async move {
        let maker = makers.acquire().await?;
        let sandbox = provider.create(&Served::spec()).await?;
        drop(maker);
        all_there.wait().await;
        let line = format!("sleep 2; echo {number}");
        let exit = sandbox.exec(&Command::shell(line), &mut Discard).await?;
        if exit.stdout.text() != format!("{number}\n") || !sandbox.notices().is_empty() {
            return Err(format!("sandbox {number}: {:?} {:?}", exit, sandbox.notices()).into());
        }
        all_there.wait().await;
        sandbox.close().await?;
        Fallible::Ok(())
    });
    try_join_all(work).await?;
    let took = started.elapsed();
    println!(
        "{SANDBOXES} sandboxes: made, used at once and removed in {:.1} s",
        took.as_secs_f64()
    );
    Ok(vec![Figure {
        name: "200-sandboxes-memory",
        unit: "MB",
        at: MEDIAN,
        ours: Samples::one(most_memory()? / 1000.0),
        peer: None,
        target: Target::Most(150.0),
    }])
}

/// The greatest size that this process has had, in kilobytes.
fn most_memory() -> Fallible<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    Ok(kilobytes.ok_or("no VmHWM")?.trim().parse()?)
}
