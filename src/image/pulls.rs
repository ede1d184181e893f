//! Records when ralph pulled which image. An engine knows when an image was built, but not when it was last pulled.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::engine_state::PullHistory;
use super::reference::ImageReference;
use crate::atomic_file::write_cache;
use crate::engine::EngineEndpoint;

/// The version of the file format. A file of another version is ignored.
const VERSION: u32 = 1;

/// A file with the pulls into engines. If it is deleted, bases are pulled again.
#[derive(Clone, Debug)]
pub(super) struct PullLog {
    path: PathBuf,
    engine: EngineEndpoint,
}

/// How a pull ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PullOutcome {
    Succeeded,
    Failed,
}

impl PullLog {
    /// The log in this file, which need not exist and also has the pulls into other engines.
    pub(super) fn new(path: PathBuf, engine: EngineEndpoint) -> Self {
        Self { path, engine }
    }

    /// When an image was pulled.
    pub(super) fn history(&self, image: &ImageReference, now: Timestamp) -> PullHistory {
        let stored = StoredPulls::read(&self.path);
        let pull = stored.pulls.get(&self.key(image));
        let ago = |moment: Option<Timestamp>| moment.map(|moment| since(moment, now));
        PullHistory::Earlier {
            succeeded: ago(pull.and_then(|pull| pull.succeeded)),
            failed: ago(pull.and_then(|pull| pull.failed)),
        }
    }

    /// Records a pull. A success erases an earlier failure, but not the other way round. If the file cannot be written, the
    /// next plan pulls again.
    pub(super) fn record(&self, image: &ImageReference, outcome: PullOutcome, now: Timestamp) {
        let mut stored = StoredPulls::read(&self.path);
        let pull = stored.pulls.entry(self.key(image)).or_default();
        match outcome {
            PullOutcome::Succeeded => {
                *pull = StoredPull {
                    succeeded: Some(now),
                    failed: None,
                }
            }
            PullOutcome::Failed => pull.failed = Some(now),
        }
        if let Ok(bytes) = serde_json::to_vec_pretty(&stored) {
            write_cache(&self.path, &bytes);
        }
    }

    fn key(&self, image: &ImageReference) -> String {
        format!("{} {image}", self.engine)
    }
}

/// Zero if the clock was set back.
fn since(moment: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(moment).try_into().unwrap_or_default()
}

#[derive(Serialize, Deserialize)]
struct StoredPulls {
    version: u32,
    pulls: BTreeMap<String, StoredPull>,
}

#[derive(Default, Serialize, Deserialize)]
struct StoredPull {
    succeeded: Option<Timestamp>,
    failed: Option<Timestamp>,
}

impl StoredPulls {
    fn read(path: &Path) -> Self {
        let read = || serde_json::from_slice(&fs::read(path).ok()?).ok();
        read()
            .filter(|stored: &Self| stored.version == VERSION)
            .unwrap_or(Self {
                version: VERSION,
                pulls: BTreeMap::new(),
            })
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use rstest::rstest;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn log(path: PathBuf, socket: &str) -> PullLog {
        PullLog::new(path, EngineEndpoint::Unix(socket.into()))
    }

    fn debian() -> ImageReference {
        ImageReference::parse("debian:12").unwrap()
    }

    #[rstest]
    #[case::nothing(&[], None, None)]
    #[case::success(&[PullOutcome::Succeeded], Some(HOUR), None)]
    #[case::failure(&[PullOutcome::Failed], None, Some(HOUR))]
    #[case::failure_after_success(&[PullOutcome::Succeeded, PullOutcome::Failed], Some(2 * HOUR), Some(HOUR))]
    #[case::success_after_failure(&[PullOutcome::Failed, PullOutcome::Succeeded], Some(HOUR), None)]
    fn pulls_are_recorded(
        #[case] outcomes: &[PullOutcome],
        #[case] succeeded: Option<Duration>,
        #[case] failed: Option<Duration>,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("images/pulls.json");
        let here = log(path.clone(), "/run/a.sock");
        let mut now = Timestamp::UNIX_EPOCH;
        for outcome in outcomes {
            here.record(&debian(), *outcome, now);
            now += 1.hour();
        }
        assert_eq!(
            here.history(&debian(), now),
            PullHistory::Earlier { succeeded, failed }
        );
        let never = PullHistory::Earlier {
            succeeded: None,
            failed: None,
        };
        assert_eq!(log(path, "/run/b.sock").history(&debian(), now), never);
    }

    #[test]
    fn a_damaged_log_is_ignored_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pulls.json");
        fs::write(&path, "{").unwrap();
        let log = log(path, "/run/a.sock");
        let now = Timestamp::UNIX_EPOCH;
        log.record(&debian(), PullOutcome::Succeeded, now);
        let set_back = now - 1.hour();
        let just_now = PullHistory::Earlier {
            succeeded: Some(Duration::ZERO),
            failed: None,
        };
        assert_eq!(log.history(&debian(), set_back), just_now);
    }
}
