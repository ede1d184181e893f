//! The process group of one command.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

use super::mark::ProcessMark;

/// How long dropping a group may wait for its processes to end.
const DROP_TIMEOUT: Duration = Duration::from_millis(100);

/// Everything that one command started. Kills all of it when dropped, unless [released](ProcessGroup::release).
#[derive(Debug)]
pub(super) struct ProcessGroup {
    leader: Pid,
    mark: ProcessMark,
    released: bool,
}

impl ProcessGroup {
    /// The group that `child` leads.
    pub(super) fn new(child: &Child, mark: ProcessMark) -> io::Result<Self> {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let leader = id.and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            leader,
            mark,
            released: false,
        })
    }

    /// Kills the group and every process that left it.
    pub(super) async fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::KILL);
        let killed = self.mark.kill_all().await;
        self.released = true;
        killed
    }

    /// Leaves background processes running: the command itself has ended normally.
    pub(super) fn release(&mut self) {
        self.released = true;
    }

    /// Sends a signal to the group.
    pub(super) fn signal(&self, signal: Signal) {
        // Fails if the group has already ended.
        let _ = kill_process_group(self.leader, signal);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.released {
            self.signal(Signal::KILL);
            // A destructor cannot report an error.
            let _ = self.mark.kill_all_blocking(DROP_TIMEOUT);
        }
    }
}
