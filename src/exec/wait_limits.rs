//! The time limits of a command.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Command, ExitStatus};

/// The time limits of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimits {
    deadline: Option<Instant>,
    idle: Option<Duration>,
}

impl WaitLimits {
    /// The limits of a command that started at this time.
    pub(crate) fn new(command: &Command, started: Instant) -> Self {
        Self {
            deadline: command.timeout.and_then(|limit| started.checked_add(limit)),
            idle: command.idle,
        }
    }

    /// A deadline only, from now on.
    pub(crate) fn timeout(wait: Duration) -> Self {
        Self {
            deadline: Instant::now().checked_add(wait),
            idle: None,
        }
    }

    /// Waits for the first limit of a command whose last output was at this time. Returns the status of a command that
    /// is ended for it.
    pub(crate) async fn exceeded(&self, last_output: Instant) -> ExitStatus {
        let idle = self.idle.and_then(|idle| last_output.checked_add(idle));
        let limits = [(self.deadline, ExitStatus::TimedOut), (idle, ExitStatus::Idle)];
        let next = limits
            .into_iter()
            .filter_map(|(at, status)| Some((at?, status)))
            .min_by_key(|(at, _)| *at);
        match next {
            Some((at, status)) => {
                sleep_until(at).await;
                status
            }
            None => std::future::pending().await,
        }
    }
}
