//! Whether this host can start runs. Runs that fail to start are not to blame where all runs do.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::id::RunId;

use super::attempt::backoff;

/// A run that failed to start so often, while no other one failed, is to blame itself.
const MOST_STARTS: u32 = 3;

/// What this worker has seen of its host. All attempts share it.
#[derive(Debug, Default)]
pub(super) struct HostHealth(Mutex<SeenStarts>);

#[derive(Debug, Default)]
struct SeenStarts {
    /// Whether a run began an iteration here after the last failed start.
    has_begun: bool,
    /// The runs that failed to start here since the last one that began, and how often.
    failed: BTreeMap<RunId, u32>,
}

/// What a failed start is put down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartBlame {
    /// The run: others begin here.
    Run,
    /// The host, which gets a pause: no run began here yet, or several in a row could not.
    Host(Duration),
}

impl HostHealth {
    /// A run began an iteration here.
    pub(super) fn begun(&self) {
        *self.seen() = SeenStarts {
            has_begun: true,
            failed: BTreeMap::new(),
        };
    }

    /// A run failed before its first iteration here.
    pub(super) fn failed_start(&self, run: &RunId) -> StartBlame {
        let mut seen = self.seen();
        let has_begun = std::mem::take(&mut seen.has_begun);
        let times = seen.failed.entry(run.clone()).or_default();
        *times += 1;
        let is_last = *times >= MOST_STARTS;
        if has_begun || (is_last && seen.failed.len() == 1) {
            StartBlame::Run
        } else {
            StartBlame::Host(backoff(seen.failed.values().sum()))
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, SeenStarts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u32) -> RunId {
        RunId::parse(&format!("r{number:04}")).unwrap()
    }

    fn blamed(blame: StartBlame) -> &'static str {
        match blame {
            StartBlame::Run => "run",
            StartBlame::Host(_) => "host",
        }
    }

    #[test]
    fn a_host_that_starts_no_run_is_to_blame_and_pauses_for_longer_each_time() {
        let health = HostHealth::default();
        let blames: Vec<StartBlame> = (1..5).map(|number| health.failed_start(&run(number))).collect();
        let pauses = [15, 30, 60, 120].map(|seconds| StartBlame::Host(Duration::from_secs(seconds)));
        assert_eq!(blames, pauses);
    }

    #[test]
    fn a_run_that_fails_where_others_begin_is_to_blame() {
        let health = HostHealth::default();
        health.begun();
        assert_eq!(health.failed_start(&run(1)), StartBlame::Run);
        // The first one may still have been the host's.
        assert_eq!(blamed(health.failed_start(&run(2))), "host");
        health.begun();
        assert_eq!(health.failed_start(&run(1)), StartBlame::Run);
    }

    #[test]
    fn a_run_that_always_fails_alone_is_to_blame_in_the_end() {
        let health = HostHealth::default();
        let blames: Vec<&str> = (0..4).map(|_| blamed(health.failed_start(&run(1)))).collect();
        assert_eq!(blames, ["host", "host", "run", "run"]);
    }
}
