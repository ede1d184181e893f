//! When ralph pulled which image. An engine knows when an image was made, not when somebody last looked for a newer one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::facts::Pulls;
use super::reference::ImageReference;
use crate::atomic_file::{FileAccess, write_atomically};
use crate::engine::EngineEndpoint;

/// The form of the file. One of another form is as good as none.
const VERSION: u32 = 1;

/// Remembers what was pulled into an engine, in a file. It can be deleted: then bases are pulled once more.
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
    /// The log in this file, which need not exist. It holds the pulls of other engines, too.
    pub(super) fn new(path: PathBuf, engine: EngineEndpoint) -> Self {
        Self { path, engine }
    }

    /// When an image was pulled.
    pub(super) fn of(&self, image: &ImageReference, now: Timestamp) -> Pulls {
        let stored = Stored::read(&self.path);
        let pull = stored.pulls.get(&self.key(image));
        let ago = |moment: Option<Timestamp>| moment.map(|moment| since(moment, now));
        Pulls::Earlier {
            succeeded: ago(pull.and_then(|pull| pull.succeeded)),
            failed: ago(pull.and_then(|pull| pull.failed)),
        }
    }

    /// Remembers a pull. A success makes an earlier failure forgotten, and not the other way round.
    pub(super) fn record(
        &self,
        image: &ImageReference,
        outcome: PullOutcome,
        now: Timestamp,
    ) -> io::Result<()> {
        let mut stored = Stored::read(&self.path);
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
        stored.write(&self.path)
    }

    fn key(&self, image: &ImageReference) -> String {
        format!("{} {image}", self.engine)
    }
}

/// A clock that was set back must not make a pull look old.
fn since(moment: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(moment).try_into().unwrap_or_default()
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    pulls: BTreeMap<String, StoredPull>,
}

#[derive(Default, Serialize, Deserialize)]
struct StoredPull {
    succeeded: Option<Timestamp>,
    failed: Option<Timestamp>,
}

impl Stored {
    fn read(path: &Path) -> Self {
        let read = || serde_json::from_slice(&fs::read(path).ok()?).ok();
        read()
            .filter(|stored: &Self| stored.version == VERSION)
            .unwrap_or(Self {
                version: VERSION,
                pulls: BTreeMap::new(),
            })
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        write_atomically(path, &serde_json::to_vec_pretty(self)?, FileAccess::Private)
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
    fn pulls_are_remembered(
        #[case] outcomes: &[PullOutcome],
        #[case] succeeded: Option<Duration>,
        #[case] failed: Option<Duration>,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("images/pulls.json");
        let here = log(path.clone(), "/run/a.sock");
        let mut now = Timestamp::UNIX_EPOCH;
        for outcome in outcomes {
            here.record(&debian(), *outcome, now).unwrap();
            now += 1.hour();
        }
        assert_eq!(here.of(&debian(), now), Pulls::Earlier { succeeded, failed });
        let never = Pulls::Earlier {
            succeeded: None,
            failed: None,
        };
        assert_eq!(log(path, "/run/b.sock").of(&debian(), now), never);
    }

    #[test]
    fn a_damaged_log_remembers_nothing_and_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pulls.json");
        fs::write(&path, "{").unwrap();
        let log = log(path, "/run/a.sock");
        let now = Timestamp::UNIX_EPOCH;
        log.record(&debian(), PullOutcome::Succeeded, now).unwrap();
        let set_back = now - 1.hour();
        let just_now = Pulls::Earlier {
            succeeded: Some(Duration::ZERO),
            failed: None,
        };
        assert_eq!(log.of(&debian(), set_back), just_now);
    }
}
