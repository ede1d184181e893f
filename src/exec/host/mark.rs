//! Marks: how processes are found again after they left the process group they were started in.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The variable that carries the mark.
const VARIABLE: &str = "RALPH_MARK";

/// How long processes may take to go once they were killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to leave killed processes before looking again.
const PAUSE: Duration = Duration::from_millis(2);

/// A value in the environment of processes. The mark of one command begins with the mark of the host that started it,
/// so that either can be looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark(OsString);

impl Mark {
    /// The mark of a host that nobody will look for by name.
    pub(super) fn random() -> Self {
        Self::named(unique())
    }

    /// The mark of all hosts of this name.
    pub(super) fn named(name: impl Into<OsString>) -> Self {
        let mut value = name.into();
        value.push(":");
        Self(value)
    }

    /// A new mark below this one, for one command.
    pub(super) fn one_command(&self) -> Self {
        let mut value = self.0.clone();
        value.push(unique());
        Self(value)
    }

    /// The variable to start a process with.
    pub(super) fn variable(&self) -> (&'static str, &OsStr) {
        (VARIABLE, &self.0)
    }

    /// Kills everything that carries the mark, until nothing does.
    pub(super) async fn end(&self) -> io::Result<()> {
        let mark = self.clone();
        tokio::task::spawn_blocking(move || mark.end_blocking(PATIENCE))
            .await
            .map_err(io::Error::other)?
    }

    /// Waits until nothing carries the mark any more.
    pub(super) async fn gone(&self, patience: Duration) -> io::Result<()> {
        let mark = self.clone();
        let wait = move || mark.pass_until_gone(patience, |_| {});
        tokio::task::spawn_blocking(wait)
            .await
            .map_err(io::Error::other)?
    }

    /// As [`Mark::end`], for where nothing can be awaited. A pass over the process table takes a few milliseconds.
    pub(super) fn end_blocking(&self, patience: Duration) -> io::Result<()> {
        self.pass_until_gone(patience, |pid| {
            // One that has gone by itself, or may not be killed, is seen by the next pass.
            let _ = kill_process(pid, Signal::KILL);
        })
    }

    /// Looks for processes with the mark until there are none, and does something to each on every pass.
    fn pass_until_gone(&self, patience: Duration, each: impl Fn(Pid)) -> io::Result<()> {
        let give_up = Instant::now() + patience;
        loop {
            let found = self.processes()?;
            if found.is_empty() {
                return Ok(());
            }
            let (count, first) = (found.len(), found[0]);
            let is_over = Instant::now() >= give_up;
            found.into_iter().for_each(&each);
            if is_over {
                let message = format!("{count} processes do not end (one is {first})");
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            thread::sleep(PAUSE);
        }
    }

    /// The processes that carry the mark and everything they started, whatever its environment.
    fn processes(&self) -> io::Result<Vec<Pid>> {
        let needle = [VARIABLE.as_bytes(), b"=", self.0.as_bytes()].concat();
        table::processes_with(&needle)
    }
}

fn unique() -> String {
    format!("{:016x}", fastrand::u64(..))
}

#[cfg(target_os = "linux")]
mod table {
    use std::collections::{HashMap, HashSet};
    use std::{fs, io, iter};

    use rustix::process::Pid;

    /// Processes whose environment has an entry that begins with `needle`, and their descendants.
    pub(super) fn processes_with(needle: &[u8]) -> io::Result<Vec<Pid>> {
        let all: Vec<i32> = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        let marked: HashSet<i32> = all.iter().copied().filter(|pid| carries(*pid, needle)).collect();
        if marked.is_empty() {
            return Ok(Vec::new());
        }
        let parents: HashMap<i32, i32> = all.iter().filter_map(|pid| Some((*pid, parent(*pid)?))).collect();
        let descends = |pid: i32| {
            iter::successors(Some(pid), |pid| parents.get(pid).copied())
                .take(parents.len() + 1)
                .any(|ancestor| marked.contains(&ancestor))
        };
        Ok(all
            .iter()
            .filter(|pid| descends(**pid))
            .filter_map(|pid| Pid::from_raw(*pid))
            .collect())
    }

    /// What cannot be read is gone, or another user's.
    fn carries(pid: i32, needle: &[u8]) -> bool {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
            environ
                .split(|byte| *byte == 0)
                .any(|entry| entry.starts_with(needle))
        })
    }

    /// The second field after the name, which is in parentheses and may hold anything.
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

    /// Processes whose line in the process table holds `needle`.
    pub(super) fn processes_with(needle: &[u8]) -> io::Result<Vec<Pid>> {
        let table = super::super::process_table()?;
        Ok(table
            .split(|byte| *byte == b'\n')
            .filter(|line| line.windows(needle.len()).any(|window| window == needle))
            .filter_map(|line| {
                str::from_utf8(line.trim_ascii_start().split(|byte| *byte == b' ').next()?).ok()
            })
            .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
            .collect())
    }
}
