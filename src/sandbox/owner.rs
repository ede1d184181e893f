//! The process that has a sandbox in its hands.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

/// The process that has a sandbox in its hands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// The machine.
    host: String,
    /// The process.
    pid: u32,
    /// When it started, where the system tells: process numbers are used again.
    started: Option<u64>,
}

impl Owner {
    /// This process, on the machine of that name.
    pub(super) fn this_process(host: &str) -> Self {
        let pid = std::process::id();
        Self {
            host: host.to_owned(),
            pid,
            started: start_of(pid),
        }
    }

    /// As it is written on a container.
    pub(super) fn as_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it is, or was, a process of the same machine as `here`.
    pub(super) fn is_of_this_machine(&self, here: &Self) -> bool {
        self.host == here.host
    }

    /// Whether it is sure to have ended, as seen from where `here` is. Of another machine nobody can say so.
    pub(super) fn is_dead(&self, here: &Self) -> bool {
        if !self.is_of_this_machine(here) {
            return false;
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let lives = pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH));
        let is_another = match (self.started, start_of(self.pid)) {
            (Some(then), Some(now)) => then != now,
            _ => false,
        };
        !lives || is_another || is_unburied(self.pid)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// When a process started, in ticks since the machine did: field 22.
fn start_of(pid: u32) -> Option<u64> {
    stat(pid, 22)?.parse().ok()
}

/// Whether a process has ended and only its parent does not know yet.
fn is_unburied(pid: u32) -> bool {
    stat(pid, 3).is_some_and(|state| state == "Z" || state == "X")
}

/// A field of what the system says of a process, from the third on: the second is its name, which may hold anything.
fn stat(pid: u32, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(field - 3).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_dead_when_nothing_or_another_process_has_its_number() {
        let here = Owner::this_process("here");
        assert!(!here.is_dead(&here));
        let earlier = Owner {
            started: here.started.map(|ticks| ticks - 1),
            ..here.clone()
        };
        assert_eq!(earlier.is_dead(&here), here.started.is_some());
        let gone = Owner {
            pid: u32::MAX / 2,
            ..here.clone()
        };
        assert!(gone.is_dead(&here));
    }

    #[test]
    fn nobody_can_say_that_a_process_of_another_machine_is_dead() {
        let here = Owner::this_process("here");
        let far = Owner {
            host: "there".to_owned(),
            pid: u32::MAX / 2,
            started: None,
        };
        assert!(!far.is_dead(&here));
    }
}
