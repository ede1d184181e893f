//! Whether this host can start runs. Runs that fail to start are not to blame where all runs do.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::attempt::backoff;

/// What this worker has seen of its host. All attempts share it.
#[derive(Debug, Default)]
pub(super) struct HostHealth(Mutex<SeenStarts>);

#[derive(Debug, Default)]
struct SeenStarts {
    /// Whether a run began an iteration here after the last failed start.
    has_begun: bool,
    /// How many starts failed here since the last run that began.
    failed: u32,
}

impl HostHealth {
    /// A run began an iteration here.
    pub(super) fn begun(&self) {
        *self.seen() = SeenStarts {
            has_begun: true,
            failed: 0,
        };
    }

    /// A run failed before its first iteration here. Returns how long this host claims nothing; `None` if the run is to blame,
    /// because another one began here since the last failed start.
    pub(super) fn failed_start(&self) -> Option<Duration> {
        let mut seen = self.seen();
        seen.failed += 1;
        let has_begun = std::mem::take(&mut seen.has_begun);
        (!has_begun).then(|| backoff(seen.failed))
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, SeenStarts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_starts_no_run_pauses_for_longer_each_time() {
        let health = HostHealth::default();
        let pauses = [(); 4].map(|()| health.failed_start());
        assert_eq!(
            pauses,
            [15, 30, 60, 120].map(|seconds| Some(Duration::from_secs(seconds)))
        );
    }

    #[test]
    fn a_run_that_fails_where_others_begin_is_to_blame() {
        let health = HostHealth::default();
        health.begun();
        assert_eq!(health.failed_start(), None);
        // The first one may still have been the host's.
        assert!(health.failed_start().is_some());
        health.begun();
        assert_eq!(health.failed_start(), None);
    }
}
