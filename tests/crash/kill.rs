//! `kill -9` at random moments, and `ralph resume` after each, until the run is done.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::ending::{Ending, Owners, UNDISTURBED};
use crate::world::{Ralph, SCRIPT, World};

const KILLS: u32 = 200;
const THREADS: u32 = 2;
/// The longest time between an event and what follows it, for example a checkpoint.
const SOON: Duration = Duration::from_millis(60);
/// Events with a checkpoint, the pull request or the making of the clone right after or before them, and how often they
/// come as a rule.
const NEAR_CHECKPOINTS: [(&str, u32); 9] = [
    ("run_started", 1),
    ("run_resumed", 1),
    ("checked", 4),
    ("ticked", 2),
    ("not_ticked", 1),
    ("ladder", 2),
    ("iteration_ended", 4),
    ("pull_request", 1),
    ("run_ended", 1),
];

#[test]
fn a_run_killed_at_any_moment_comes_to_the_same_end() {
    let seed = number("RALPH_CRASH_SEED").unwrap_or_else(|| fastrand::u64(..));
    let wanted = number("RALPH_CRASH_KILLS").map_or(KILLS, |kills| u32::try_from(kills).unwrap());
    println!("seed {seed}: RALPH_CRASH_SEED={seed} chooses the same moments again");
    let (started, kills, runs) = (Instant::now(), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while kills.load(Ordering::Relaxed) < wanted {
                    let run = runs.fetch_add(1, Ordering::Relaxed);
                    kills.fetch_add(torment(seed, run), Ordering::Relaxed);
                }
            });
        }
    });
    let (kills, runs, took) = (kills.into_inner(), runs.into_inner(), started.elapsed());
    println!("{kills} kills in {runs} runs, {} s", took.as_secs());
    assert!(kills >= wanted);
}

/// Kills one run several times; returns how often.
fn torment(seed: u64, run: u32) -> u32 {
    let (undisturbed, took) = &*UNDISTURBED;
    let mut rng = Rng::with_seed(seed.wrapping_add(u64::from(run)));
    let world = World::new(SCRIPT);
    let owners = Owners::of(&world);
    let most = rng.u32(3..=9);
    let (mut kills, mut moments) = (0, Vec::new());
    let mut ralph = loop {
        let mut ralph = world.go_on();
        if kills == most {
            break ralph;
        }
        let moment = Moment::random(&mut rng, *took);
        moments.push(moment);
        if !moment.strike(&mut ralph) {
            break ralph;
        }
        kills += 1;
    };
    let status = ralph.finish();
    let story = format!(
        "run {run} of seed {seed}: {status} after {moments:?}\n{}",
        ralph.stderr()
    );
    assert_eq!(status.code(), Some(0), "{story}");
    Ending::of(&world).assert_same_as(undisturbed);
    owners.assert_untouched(&world);
    kills
}

/// When to strike.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after ralph started.
    After(Duration),
    /// So long after an event had come so many times.
    Near {
        event: &'static str,
        times: u32,
        after: Duration,
    },
}

impl Moment {
    fn random(rng: &mut Rng, took: Duration) -> Self {
        if rng.bool() {
            return Self::After(took.mul_f64(rng.f64()));
        }
        let (event, most) = NEAR_CHECKPOINTS[rng.usize(..NEAR_CHECKPOINTS.len())];
        Self::Near {
            event,
            times: rng.u32(1..=most),
            after: SOON.mul_f64(rng.f64()),
        }
    }

    /// Kills ralph then; `false` when it ended before.
    fn strike(self, ralph: &mut Ralph) -> bool {
        match self {
            Self::After(wait) => std::thread::sleep(wait),
            Self::Near { event, times, after } => {
                if !ralph.wait_for(event, times) {
                    return false;
                }
                std::thread::sleep(after);
            }
        }
        ralph.kill().signal() == Some(9)
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {text}")),
    )
}
