//! Finds processes that left the process group they were started in, by a mark in their environment.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};
use std::{io, iter, thread};

use rustix::process::{Pid, Signal, kill_process};

use super::super::blocking;
use crate::text::counted;

/// The environment variable that holds the mark.
pub(super) const VARIABLE: &str = "RALPH_MARK";

/// How long killed processes may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause between two scans of the process table.
const PAUSE: Duration = Duration::from_millis(2);

/// The value of `RALPH_MARK` in the environment of processes. The mark of a command begins with the mark of the
/// [`Host`](super::Host) that started it, so a scan can look for either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessMark(pub(super) OsString);

impl ProcessMark {
    /// The mark of a host without a name.
    pub(super) fn random() -> Self {
        Self::named(random_suffix())
    }

    /// The mark of all hosts of this name.
    pub(super) fn named(name: impl Into<OsString>) -> Self {
        let mut value = name.into();
        value.push(":");
        Self(value)
    }

    /// A new mark for one command of this host.
    pub(super) fn for_command(&self) -> Self {
        let mut value = self.0.clone();
        value.push(random_suffix());
        Self(value)
    }

    /// Kills all processes with the mark, until none is left.
    pub(super) async fn kill_all(&self) -> io::Result<()> {
        let mark = self.clone();
        blocking(move || mark.kill_all_blocking(KILL_TIMEOUT)).await
    }

    /// Waits until no process has the mark.
    pub(super) async fn wait_for_all(&self, timeout: Duration) -> io::Result<()> {
        let mark = self.clone();
        blocking(move || mark.scan_until_none(timeout, |_| {})).await
    }

    /// Like [`ProcessMark::kill_all`], for destructors. A scan of the process table takes a few milliseconds.
    pub(super) fn kill_all_blocking(&self, timeout: Duration) -> io::Result<()> {
        self.scan_until_none(timeout, |pid| {
            // If this fails, the next scan finds the process again, unless it has ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        })
    }

    /// Scans for processes with the mark until there are none, and calls `each` for every process of every scan.
    fn scan_until_none(&self, timeout: Duration, each: impl Fn(Pid)) -> io::Result<()> {
        let needle = [VARIABLE.as_bytes(), b"=", self.0.as_bytes()].concat();
        let deadline = Instant::now() + timeout;
        loop {
            let found = table::processes_with(&needle)?;
            let Some(first) = found.first() else {
                return Ok(());
            };
            let timed_out = Instant::now() >= deadline;
            found.iter().copied().for_each(&each);
            if timed_out {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    still_running(found.len(), *first),
                ));
            }
            thread::sleep(PAUSE);
        }
    }
}

fn still_running(count: usize, first: Pid) -> String {
    match count {
        1 => format!("still running: process {first}"),
        count => format!("still running: {} (one is {first})", counted(count, "process")),
    }
}

fn random_suffix() -> String {
    format!("{:016x}", fastrand::u64(..))
}

/// The marked processes and their descendants. Every process is given with its parent.
fn with_descendants(marked: &HashSet<i32>, parents: &HashMap<i32, i32>) -> Vec<Pid> {
    let descends = |pid: i32| {
        iter::successors(Some(pid), |pid| parents.get(pid).copied())
            .take(parents.len() + 1)
            .any(|ancestor| marked.contains(&ancestor))
    };
    let found = parents.keys().copied().filter(|pid| descends(*pid));
    found.filter_map(Pid::from_raw).collect()
}

#[cfg(target_os = "linux")]
mod table {
    use std::collections::{HashMap, HashSet};
    use std::{fs, io};

    use rustix::process::Pid;

    use super::with_descendants;

    /// Processes whose environment has an entry that begins with `needle`, and their descendants.
    pub(super) fn processes_with(needle: &[u8]) -> io::Result<Vec<Pid>> {
        let all: Vec<i32> = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        let marked: HashSet<i32> = all
            .iter()
            .copied()
            .filter(|pid| has_entry(*pid, needle))
            .collect();
        if marked.is_empty() {
            return Ok(Vec::new());
        }
        let parents: HashMap<i32, i32> = all.iter().filter_map(|pid| Some((*pid, parent(*pid)?))).collect();
        Ok(with_descendants(&marked, &parents))
    }

    /// A process whose environment cannot be read has ended, or belongs to another user.
    fn has_entry(pid: i32, needle: &[u8]) -> bool {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
            environ
                .split(|byte| *byte == 0)
                .any(|entry| entry.starts_with(needle))
        })
    }

    /// The parent: the second field after the name, which is in parentheses and may contain anything.
    fn parent(pid: i32) -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod table {
    use std::io;

    use rustix::process::Pid;

    use super::super::process_info::ps;

    /// Processes of this user that have `needle` in their environment, and their descendants.
    ///
    /// macOS shows the environment of no program of its own (`/bin/sh`, `/bin/sleep`): such a process is found only as
    /// the descendant of one with a visible mark.
    pub(super) fn processes_with(needle: &[u8]) -> io::Result<Vec<Pid>> {
        let table = ps(&["-x", "-ww", "-E", "-o", "pid=", "-o", "ppid=", "-o", "command="])?;
        Ok(super::marked_in_table(&table, needle))
    }
}

/// Reads a process table with one process per line: its id, its parent's, and its arguments and environment mixed.
#[cfg(any(test, not(target_os = "linux")))]
fn marked_in_table(table: &[u8], needle: &[u8]) -> Vec<Pid> {
    let mut marked = HashSet::new();
    let mut parents = HashMap::new();
    for line in table.split(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        let mut words = text.split_ascii_whitespace().map(str::parse::<i32>);
        let (Some(Ok(pid)), Some(Ok(parent))) = (words.next(), words.next()) else {
            continue;
        };
        parents.insert(pid, parent);
        if line.windows(needle.len()).any(|window| window == needle) {
            marked.insert(pid);
        }
    }
    with_descendants(&marked, &parents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_is_not_one_of_many() {
        let first = Pid::from_raw(12).unwrap();
        assert_eq!(still_running(1, first), "still running: process 12");
        assert_eq!(still_running(2, first), "still running: 2 processes (one is 12)");
    }

    /// As macOS prints it: nothing of the environment of its own programs.
    const TABLE: &str = "    1     0 /sbin/launchd\n\
        \x20 400     1 /usr/local/bin/ralph run HOME=/tmp\n\
        \x20 501   400 /opt/homebrew/bin/node agent.js RALPH_MARK=run-1:00ff HOME=/tmp\n\
        \x20 502   501 /bin/sh -c sleep 1000\n\
        \x20 503   502 /bin/sleep 1000\n\
        \x20 504     1 /opt/homebrew/bin/python3 -m http.server RALPH_MARK=run-1:00ff\n\
        \x20 505   400 /opt/homebrew/bin/node other.js RALPH_MARK=run-2:11ee\n\
        malformed line\n";

    #[test]
    fn descendants_without_a_visible_environment_are_found_in_a_process_table() {
        let mut found: Vec<i32> = marked_in_table(TABLE.as_bytes(), b"RALPH_MARK=run-1:")
            .into_iter()
            .map(Pid::as_raw_pid)
            .collect();
        found.sort_unstable();
        assert_eq!(found, [501, 502, 503, 504]);
        assert_eq!(marked_in_table(TABLE.as_bytes(), b"RALPH_MARK=run-3:"), []);
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let parents = HashMap::from([(7, 8), (8, 7)]);
        assert_eq!(with_descendants(&HashSet::from([9]), &parents), []);
    }
}
