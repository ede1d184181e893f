//! Run directories of a host: listing them.

use std::time::Instant;

use ralph::state::Runs;
use support::ralph::{Place, script, whole_task};

use super::Fallible;
use super::figure::curve::Curve;
use super::figure::{Samples, quick};
use super::many_runs::copy_run;

const SIZES: [usize; 4] = [10, 100, 1_000, 10_000];
const QUICK_SIZES: [usize; 3] = [10, 100, 1_000];
const ROUNDS: usize = 10;

pub(crate) fn measure() -> Fallible<Vec<Curve>> {
    let what = "Opening all run directories of a host, as a command that selects a run does.";
    let mut list = Curve::new("list-run-directories", "run directories", what, "ms");
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &[]);
    let example = place.run_dir();
    let dir = example.parent().ok_or("the run has no parent")?.to_owned();
    let mut made = 1;
    for size in quick::pick(&SIZES[..], &QUICK_SIZES[..]) {
        while made < *size {
            copy_run(&example, &dir.join(format!("rscale{made:06}")), made)?;
            made += 1;
        }
        let mut times = Vec::new();
        for _ in 0..quick::rounds(ROUNDS) {
            let began = Instant::now();
            let found = Runs::under(&dir).list()?.len();
            times.push(began.elapsed());
            if found != *size {
                return Err(format!("{found} run directories instead of {size}").into());
            }
        }
        list.add(*size as u64, Samples::milliseconds(times));
    }
    Ok(vec![list])
}
