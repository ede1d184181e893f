//! How long a command is waited for, where nobody inside watches over it.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::exec::Command;

/// Why a command is no longer waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Finished,
    TimedOut,
    Idle,
}

/// How long a command is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    deadline: Option<Instant>,
    idle: Option<Duration>,
}

impl Limits {
    /// As the command says.
    pub(super) fn of(command: &Command, started: Instant) -> Self {
        Self {
            deadline: command.timeout.and_then(|limit| started.checked_add(limit)),
            idle: command.idle,
        }
    }

    /// So long from now on.
    pub(super) fn only(wait: Duration) -> Self {
        Self {
            deadline: Some(Instant::now() + wait),
            idle: None,
        }
    }

    /// Waits for the first limit, when something was last heard at this time.
    pub(super) async fn ring(&self, heard: Instant) -> Ending {
        let idle = self.idle.and_then(|idle| heard.checked_add(idle));
        let alarms = [(self.deadline, Ending::TimedOut), (idle, Ending::Idle)];
        let next = alarms
            .into_iter()
            .filter_map(|(at, ending)| Some((at?, ending)))
            .min_by_key(|(at, _)| *at);
        match next {
            Some((at, ending)) => {
                sleep_until(at).await;
                ending
            }
            None => std::future::pending().await,
        }
    }
}
