//! What is free of the disks that a sandbox can fill, and what that tells of how much it has grown.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// What must stay free for everybody else on this machine.
const RESERVE: u64 = 512 << 20;
/// Of a disk that the engine has to itself, which may be small, no more than one part in so many.
const PART: u64 = 10;
/// How long a size is believed where nothing shows whether it has grown.
const BELIEVED: Duration = Duration::from_secs(5);

/// What is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Of the workspace's disk.
    workspace: u64,
    engine: EngineDisk,
}

/// The disk that an engine keeps its containers on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineDisk {
    /// The workspace's.
    Same,
    /// Another.
    Own { free: u64, size: u64 },
    /// One that is not seen from here, as that of a virtual machine.
    Unseen,
}

impl Room {
    /// On the disks with these two directories; `None` where there is no workspace.
    pub(super) fn of(workspace: &Path, engine: Option<&Path>) -> Option<Self> {
        let disk = rustix::fs::statvfs(workspace).ok()?;
        Some(Self {
            // What an ordinary user may still use.
            workspace: disk.f_bavail * disk.f_frsize,
            engine: EngineDisk::of(engine, device(workspace)?),
        })
    }

    /// Why nothing more may be written, if so.
    pub(super) fn shortage(self) -> Option<String> {
        if self.workspace < RESERVE {
            return Some(format!("only {} MB of the disk are left", self.workspace >> 20));
        }
        match self.engine {
            EngineDisk::Own { free, size } if free < RESERVE.min(size / PART) => {
                Some(format!("only {} MB of the engine's disk are left", free >> 20))
            }
            EngineDisk::Own { .. } | EngineDisk::Same | EngineDisk::Unseen => None,
        }
    }

    /// The most that anybody can have written since there was this much room; `None` where that cannot be seen.
    fn gone_since(self, earlier: Self) -> Option<u64> {
        let elsewhere = match (earlier.engine, self.engine) {
            (EngineDisk::Same, EngineDisk::Same) => 0,
            (EngineDisk::Own { free: before, .. }, EngineDisk::Own { free: now, .. }) => {
                before.saturating_sub(now)
            }
            _ => return None,
        };
        Some(earlier.workspace.saturating_sub(self.workspace) + elsewhere)
    }
}

impl EngineDisk {
    fn of(directory: Option<&Path>, workspace: u64) -> Self {
        let found = directory.and_then(|directory| Some((directory, device(directory)?)));
        match found {
            None => Self::Unseen,
            Some((_, device)) if device == workspace => Self::Same,
            Some((directory, _)) => match rustix::fs::statvfs(directory) {
                Ok(disk) => Self::Own {
                    free: disk.f_bavail * disk.f_frsize,
                    size: disk.f_blocks * disk.f_frsize,
                },
                Err(_) => Self::Unseen,
            },
        }
    }
}

fn device(directory: &Path) -> Option<u64> {
    fs::metadata(directory).ok().map(|found| found.dev())
}

/// The size of a sandbox, and how much room there was then. As long as little is gone since, it cannot have grown much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    size: u64,
    room: Room,
    at: Instant,
}

impl Measured {
    pub(super) fn new(size: u64, room: Room, at: Instant) -> Self {
        Self { size, room, at }
    }

    /// The most that it can be now; `None` where only another measurement tells.
    pub(super) fn most(self, room: Room, now: Instant) -> Option<u64> {
        match room.gone_since(self.room) {
            Some(gone) => Some(self.size + gone),
            None => (now.duration_since(self.at) < BELIEVED).then_some(self.size),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const MB: u64 = 1 << 20;
    const SAME: EngineDisk = EngineDisk::Same;
    const UNSEEN: EngineDisk = EngineDisk::Unseen;

    fn own(free: u64, size: u64) -> EngineDisk {
        EngineDisk::Own {
            free: free * MB,
            size: size * MB,
        }
    }

    fn room(workspace: u64, engine: EngineDisk) -> Room {
        Room {
            workspace: workspace * MB,
            engine,
        }
    }

    #[rstest]
    #[case::enough(room(512, SAME), None)]
    #[case::too_little(room(511, SAME), Some("only 511 MB of the disk are left"))]
    #[case::too_little_whatever_the_engine_has(
        room(7, own(9000, 9000)),
        Some("only 7 MB of the disk are left")
    )]
    #[case::enough_for_the_engine(room(9000, own(512, 90_000)), None)]
    #[case::too_little_for_the_engine(
        room(9000, own(511, 90_000)),
        Some("only 511 MB of the engine's disk are left")
    )]
    #[case::enough_of_a_small_disk(room(9000, own(40, 400)), None)]
    #[case::too_little_of_a_small_disk(
        room(9000, own(39, 400)),
        Some("only 39 MB of the engine's disk are left")
    )]
    #[case::a_disk_that_is_not_seen(room(9000, UNSEEN), None)]
    fn a_sandbox_that_leaves_too_little_is_told_so(#[case] room: Room, #[case] expected: Option<&str>) {
        assert_eq!(room.shortage().as_deref(), expected);
    }

    #[rstest]
    #[case::nothing_gone(room(900, SAME), room(900, SAME), 0, Some(10))]
    #[case::somebody_removed_something(room(900, SAME), room(950, SAME), 0, Some(10))]
    #[case::something_gone(room(900, SAME), room(880, SAME), 60, Some(30))]
    #[case::from_either_disk(room(900, own(900, 900)), room(895, own(870, 900)), 0, Some(45))]
    #[case::room_on_one_hides_nothing_on_the_other(
        room(900, own(900, 900)),
        room(990, own(870, 900)),
        0,
        Some(40)
    )]
    #[case::unseen_for_a_moment(room(900, UNSEEN), room(100, UNSEEN), 4, Some(10))]
    #[case::unseen_for_long(room(900, UNSEEN), room(900, UNSEEN), 5, None)]
    #[case::another_disk(room(900, SAME), room(900, own(900, 900)), 5, None)]
    fn what_is_gone_tells_how_large_it_can_be(
        #[case] before: Room,
        #[case] now: Room,
        #[case] seconds: u64,
        #[case] expected: Option<u64>,
    ) {
        let at = Instant::now();
        let measured = Measured::new(10 * MB, before, at);
        let most = measured.most(now, at + Duration::from_secs(seconds));
        assert_eq!(most, expected.map(|megabytes| megabytes * MB));
    }

    #[test]
    fn a_disk_is_found_by_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let of = |engine| Room::of(dir.path(), engine).unwrap().engine;
        assert_eq!(of(Some(dir.path())), EngineDisk::Same);
        assert!(matches!(of(Some(Path::new("/proc"))), EngineDisk::Own { .. }));
        assert_eq!(of(Some(&missing)), EngineDisk::Unseen);
        assert_eq!(of(None), EngineDisk::Unseen);
        assert_eq!(Room::of(&missing, None), None);
    }
}
