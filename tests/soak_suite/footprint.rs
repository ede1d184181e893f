//! Memory and descriptors of a process that lives as long as the soak.

use std::fs;

/// What it may grow by after [`WARM_UP`] rounds, however long it lives.
const MORE_MEMORY_KB: u64 = 24 * 1024;
const MORE_DESCRIPTORS: usize = 8;
/// Rounds in which pools and caches are filled.
const WARM_UP: usize = 3;

/// What a process holds between two rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    pub memory_kb: u64,
    pub descriptors: usize,
}

impl Footprint {
    pub fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = resident.unwrap().trim().trim_end_matches(" kB");
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        Self {
            memory_kb: number.parse().unwrap(),
            descriptors,
        }
    }
}

/// Fails if a process has grown.
pub fn assert_flat(name: &str, history: &[Footprint]) {
    let (Some(first), Some(last)) = (history.get(WARM_UP), history.last()) else {
        return;
    };
    assert!(
        last.memory_kb <= first.memory_kb + MORE_MEMORY_KB,
        "{name} has grown from {first:?} to {last:?}"
    );
    assert!(
        last.descriptors <= first.descriptors + MORE_DESCRIPTORS,
        "{name} has grown from {first:?} to {last:?}"
    );
}
