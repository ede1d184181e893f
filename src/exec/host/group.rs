//! The process group of one command.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::mark::Mark;

/// How long dropping a group may wait for its processes to go.
const DROP_PATIENCE: Duration = Duration::from_millis(100);

/// Everything one command started. Dropped before it is [released](Group::release), it kills all of it.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    mark: Mark,
    released: bool,
}

impl Group {
    pub(super) fn new(leader: Pid, mark: Mark) -> Self {
        Self {
            leader,
            mark,
            released: false,
        }
    }

    /// Asks the group to end.
    pub(super) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills the group and what left it.
    pub(super) async fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::KILL);
        let ended = self.mark.end().await;
        self.released = true;
        ended
    }

    /// Lets go: the command has ended by itself, and what it left running in the background may go on.
    pub(super) fn release(&mut self) {
        self.released = true;
    }

    fn signal(&self, signal: Signal) {
        // It fails when the group has gone by itself.
        let _ = kill_process_group(self.leader, signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.released {
            self.signal(Signal::KILL);
            // Nobody is left to tell.
            let _ = self.mark.end_blocking(DROP_PATIENCE);
        }
    }
}
