//! Free space of the disks that a sandbox can fill, and an upper bound for the growth of the sandbox derived from it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The bytes that must stay free for other users of the host.
const RESERVE: u64 = 512 << 20;
/// On a disk of the engine alone, which may be small, at most this fraction must stay free.
const RESERVE_FRACTION: u64 = 10;
/// How long a measurement is valid if the growth cannot be bounded.
const VALID_FOR: Duration = Duration::from_secs(5);

/// Free space in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeSpace {
    /// On the disk of the workspace.
    workspace: u64,
    engine: EngineDisk,
}

/// The disk on which an engine stores its containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineDisk {
    /// The disk of the workspace.
    Same,
    /// Another disk.
    Own { free: u64, size: u64 },
    /// One that this host does not see, such as the disk of a VM.
    Hidden,
}

impl FreeSpace {
    /// Queries the disks of these two directories. `None` if the workspace does not exist.
    pub(super) fn query(workspace: &Path, engine: Option<&Path>) -> Option<Self> {
        let disk = rustix::fs::statvfs(workspace).ok()?;
        let workspace_device = device(workspace)?;
        let found = |dir| Some((device(dir)?, rustix::fs::statvfs(dir).ok()?));
        Some(Self {
            workspace: disk.f_bavail * disk.f_frsize,
            engine: match engine.and_then(found) {
                None => EngineDisk::Hidden,
                Some((device, _)) if device == workspace_device => EngineDisk::Same,
                Some((_, disk)) => EngineDisk::Own {
                    free: disk.f_bavail * disk.f_frsize,
                    size: disk.f_blocks * disk.f_frsize,
                },
            },
        })
    }

    /// The reason if a disk is almost full.
    pub(super) fn shortage(self) -> Option<String> {
        if self.workspace < RESERVE {
            return Some(format!("only {} MB are left on the disk", self.workspace >> 20));
        }
        match self.engine {
            EngineDisk::Own { free, size } => engine_shortage(free, size),
            EngineDisk::Same | EngineDisk::Hidden => None,
        }
    }

    /// How many bytes were written at most since `earlier`, by any process. `None` if that is unknown.
    fn used_since(self, earlier: Self) -> Option<u64> {
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

/// The reason if a disk of the engine alone is almost full. Both are in bytes.
pub(super) fn engine_shortage(free: u64, size: u64) -> Option<String> {
    let is_short = free < RESERVE.min(size / RESERVE_FRACTION);
    is_short.then(|| format!("only {} MB are left on the disk of the engine", free >> 20))
}

fn device(directory: &Path) -> Option<u64> {
    fs::metadata(directory).ok().map(|found| found.dev())
}

/// The size of a sandbox and the free space at one time. It cannot have grown more than the free space shrank since.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskMeasurement {
    pub(super) size: u64,
    pub(super) free: FreeSpace,
    pub(super) at: Instant,
}

impl DiskMeasurement {
    /// The largest possible size now. `None` if another measurement is needed.
    pub(super) fn upper_bound(self, free: FreeSpace, now: Instant) -> Option<u64> {
        match free.used_since(self.free) {
            Some(used) => Some(self.size + used),
            None => (now.duration_since(self.at) < VALID_FOR).then_some(self.size),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const MB: u64 = 1 << 20;
    const SAME: EngineDisk = EngineDisk::Same;
    const HIDDEN: EngineDisk = EngineDisk::Hidden;

    fn own(free: u64, size: u64) -> EngineDisk {
        EngineDisk::Own {
            free: free * MB,
            size: size * MB,
        }
    }

    fn free(workspace: u64, engine: EngineDisk) -> FreeSpace {
        FreeSpace {
            workspace: workspace * MB,
            engine,
        }
    }

    #[rstest]
    #[case::enough(free(512, SAME), None)]
    #[case::too_little(free(511, SAME), Some("only 511 MB are left on the disk"))]
    #[case::too_little_whatever_the_engine_has(
        free(7, own(9000, 9000)),
        Some("only 7 MB are left on the disk")
    )]
    #[case::enough_for_the_engine(free(9000, own(512, 90_000)), None)]
    #[case::too_little_for_the_engine(
        free(9000, own(511, 90_000)),
        Some("only 511 MB are left on the disk of the engine")
    )]
    #[case::enough_of_a_small_disk(free(9000, own(40, 400)), None)]
    #[case::too_little_of_a_small_disk(
        free(9000, own(39, 400)),
        Some("only 39 MB are left on the disk of the engine")
    )]
    #[case::a_hidden_disk(free(9000, HIDDEN), None)]
    fn too_little_free_space_is_a_shortage(#[case] free: FreeSpace, #[case] expected: Option<&str>) {
        assert_eq!(free.shortage().as_deref(), expected);
    }

    #[rstest]
    #[case::nothing_used(free(900, SAME), free(900, SAME), 0, Some(10))]
    #[case::something_removed(free(900, SAME), free(950, SAME), 0, Some(10))]
    #[case::something_used(free(900, SAME), free(880, SAME), 60, Some(30))]
    #[case::from_either_disk(free(900, own(900, 900)), free(895, own(870, 900)), 0, Some(45))]
    #[case::room_on_one_hides_nothing_on_the_other(
        free(900, own(900, 900)),
        free(990, own(870, 900)),
        0,
        Some(40)
    )]
    #[case::hidden_for_a_moment(free(900, HIDDEN), free(100, HIDDEN), 4, Some(10))]
    #[case::hidden_for_long(free(900, HIDDEN), free(900, HIDDEN), 5, None)]
    #[case::another_disk(free(900, SAME), free(900, own(900, 900)), 5, None)]
    fn used_space_bounds_the_size(
        #[case] before: FreeSpace,
        #[case] now: FreeSpace,
        #[case] seconds: u64,
        #[case] expected: Option<u64>,
    ) {
        let at = Instant::now();
        let measured = DiskMeasurement {
            size: 10 * MB,
            free: before,
            at,
        };
        let bound = measured.upper_bound(now, at + Duration::from_secs(seconds));
        assert_eq!(bound, expected.map(|megabytes| megabytes * MB));
    }

    #[test]
    fn a_disk_is_found_by_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let query = |engine| FreeSpace::query(dir.path(), engine).unwrap().engine;
        assert_eq!(query(Some(dir.path())), EngineDisk::Same);
        assert!(matches!(query(Some(Path::new("/proc"))), EngineDisk::Own { .. }));
        assert_eq!(query(Some(&missing)), EngineDisk::Hidden);
        assert_eq!(query(None), EngineDisk::Hidden);
        assert_eq!(FreeSpace::query(&missing, None), None);
    }
}
