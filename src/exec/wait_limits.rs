//! The time limits of a command.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Command;

/// Why a command is no longer waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    Finished,
    TimedOut,
    Idle,
}

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

    /// Waits for the first limit of a command whose last output was at this time.
    pub(crate) async fn exceeded(&self, last_output: Instant) -> WaitEnd {
        let idle = self.idle.and_then(|idle| last_output.checked_add(idle));
        let limits = [(self.deadline, WaitEnd::TimedOut), (idle, WaitEnd::Idle)];
        let next = limits
            .into_iter()
            .filter_map(|(at, end)| Some((at?, end)))
            .min_by_key(|(at, _)| *at);
        match next {
            Some((at, end)) => {
                sleep_until(at).await;
                end
            }
            None => std::future::pending().await,
        }
    }
}
