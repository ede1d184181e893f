//! How long the iterations of a run take.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ralph::event::{Event, EventKind, EventSink};

use super::figure::Samples;

/// The first iterations find cold caches and are not counted.
pub(crate) const WARM_UP: usize = 10;

/// When each iteration of a run ended, and how much of it was spent waiting for a turn.
#[derive(Default)]
pub(crate) struct Stopwatch {
    ended: Mutex<Vec<Instant>>,
    left_out: Mutex<Vec<Duration>>,
}

impl Stopwatch {
    /// Says how much of the iteration at hand does not count. To be called once in each.
    pub(crate) fn leave_out(&self, time: Duration) {
        locked(&self.left_out).push(time);
    }

    /// From the end of one iteration to the end of the next, without what was left out.
    pub(crate) fn samples(&self) -> Samples {
        let (ended, left_out) = (locked(&self.ended), locked(&self.left_out));
        let between = ended.windows(2).map(|pair| pair[1] - pair[0]);
        let first_ends_nothing = left_out.iter().skip(1);
        let counted = between
            .zip(first_ends_nothing)
            .map(|(all, left_out)| all.saturating_sub(*left_out));
        Samples::milliseconds(counted.skip(WARM_UP - 1))
    }

    /// The times of others, one for each iteration, without those of the first.
    pub(crate) fn counted(times: &[Duration]) -> Samples {
        Samples::milliseconds(times.iter().skip(WARM_UP).copied())
    }
}

impl EventSink for Stopwatch {
    fn emit(&self, event: &Event) {
        if matches!(event.kind, EventKind::IterationEnded { .. }) {
            locked(&self.ended).push(Instant::now());
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
