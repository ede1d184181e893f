//! The process that owns a sandbox.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::exec::ProcessInfo;

/// The process that owns a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// The name of its host.
    host: String,
    /// The id of the data directory that the sandbox is kept in: hosts that share an engine may have one name, but never one data
    /// directory. `None` if an older version created the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_dir: Option<String>,
    pid: u32,
    /// When it started ([`ProcessInfo::started`]), because process ids are reused. `None` if that is unknown.
    started: Option<u64>,
}

impl Owner {
    /// This process, on the host with this name.
    pub(super) fn this_process(host: &str) -> Self {
        let pid = std::process::id();
        Self {
            host: host.to_owned(),
            data_dir: None,
            pid,
            started: ProcessInfo::read(pid).map(|info| info.started),
        }
    }

    /// The same process, as the owner of a sandbox in the data directory with this id.
    pub(super) fn in_data_dir(self, id: String) -> Self {
        Self {
            data_dir: Some(id),
            ..self
        }
    }

    /// Whether its sandbox may be one of the data directory with this id. `None` is a data directory without sandboxes.
    pub(super) fn may_be_in_data_dir(&self, id: Option<&str>) -> bool {
        self.data_dir.is_none() || self.data_dir.as_deref() == id
    }

    /// The value of the owner label of a container.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether both are processes of the same host.
    pub(super) fn is_on_same_host(&self, other: &Self) -> bool {
        self.host == other.host
    }

    /// Whether the process has certainly ended, as seen by `here`. A process of another host is never considered dead.
    pub(super) fn is_dead(&self, here: &Self) -> bool {
        if !self.is_on_same_host(here) {
            return false;
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let exists = pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH));
        let found = ProcessInfo::read(self.pid);
        !exists || found.is_some_and(|found| self.is_another(found) || found.is_zombie)
    }

    /// Whether the process that has its id now is not the owner.
    fn is_another(&self, found: ProcessInfo) -> bool {
        self.started.is_some_and(|started| started != found.started)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_dead_if_its_pid_is_free_or_reused() {
        let here = Owner::this_process("here");
        assert!(!here.is_dead(&here));
        let earlier = Owner {
            started: here.started.map(|ticks| ticks - 1),
            ..here.clone()
        };
        assert!(here.started.is_some() && earlier.is_dead(&here));
        let gone = Owner {
            pid: u32::MAX / 2,
            ..here.clone()
        };
        assert!(gone.is_dead(&here));
    }

    #[test]
    fn a_process_of_another_host_is_never_dead() {
        let here = Owner::this_process("here");
        let far = Owner {
            host: "there".to_owned(),
            data_dir: None,
            pid: u32::MAX / 2,
            started: None,
        };
        assert!(!far.is_dead(&here));
    }

    #[test]
    fn an_owner_of_another_data_directory_is_known_by_its_id() {
        let owner = Owner::this_process("here").in_data_dir("1f".to_owned());
        assert!(owner.may_be_in_data_dir(Some("1f")));
        assert!(!owner.may_be_in_data_dir(Some("2e")));
        assert!(!owner.may_be_in_data_dir(None));
        let older: Owner = serde_json::from_str(r#"{"host":"here","pid":1,"started":null}"#).unwrap();
        assert!(older.may_be_in_data_dir(Some("1f")) && older.may_be_in_data_dir(None));
    }
}
