//! Rounds with `ralph run`: one run in a repository of its own, resumed after each fault that ends it.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::desk::Desk;
use crate::fault::Fault;
use crate::model::{assert_nothing_left, assert_repository, assert_undisturbed, steps};
use crate::rounds::{Played, Round, Soak, configure};
use crate::support::ralph::Live;
use crate::support::small_disk::SmallDisk;

pub fn play(soak: &mut Soak, round: &Round) -> Played {
    let (mut rng, desk) = (round.rng(), Arc::new(Desk::sqlite()));
    soak.single = Some(desk.clone());
    configure(&desk, round.place);
    let small_disk = (round.fault == Fault::FillDisk)
        .then(|| SmallDisk::mount(&desk.place.home(), round.place.disk()).unwrap());
    let script = desk.script_file(&steps(1)).display().to_string();
    let start = |soak: &Soak| {
        let mut command = if desk.place.runs().is_empty() {
            desk.ralph(&["run", "--script", &script])
        } else {
            desk.ralph(&["resume", &desk.place.run_id()])
        };
        soak.in_environment(&desk, &mut command);
        Live::start(&mut command)
    };
    let mut ralph = start(soak);
    let mut strikes = 0;
    for _ in 0..rng.u32(1..=3) {
        std::thread::sleep(round.place.span().mul_f64(rng.f64()));
        if round.fault == Fault::Nothing || !ralph.is_running() {
            break;
        }
        strikes += u32::from(strike(soak, round.fault, &ralph, small_disk.as_ref(), &mut rng));
        if round.fault == Fault::KillRalph {
            ralph.wait();
            ralph = start(soak);
        }
    }
    let mut ended = ralph.wait();
    if ended.code != Some(0) && round.fault.may_end_run() {
        ended = start(soak).wait();
    }
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let run = desk.place.run_id();
    assert_undisturbed(&desk, &run, round.fault);
    assert_repository(&desk, std::slice::from_ref(&run));
    assert_nothing_left(&desk, &[], &[], soak.engine.as_ref());
    Played { runs: 1, strikes }
}

fn strike(soak: &mut Soak, fault: Fault, ralph: &Live, disk: Option<&SmallDisk>, rng: &mut Rng) -> bool {
    match (fault, disk) {
        (Fault::KillRalph, _) => ralph.signal("KILL"),
        (Fault::SuspendRalph, _) => {
            ralph.signal("STOP");
            std::thread::sleep(Duration::from_secs(3).mul_f64(rng.f64()));
            ralph.signal("CONT");
        }
        (Fault::FillDisk, Some(disk)) => {
            let filler = disk.fill();
            std::thread::sleep(Duration::from_secs(2).mul_f64(rng.f64()));
            std::fs::remove_file(filler).unwrap();
        }
        _ => return soak.strike_engine(fault, rng),
    }
    true
}
