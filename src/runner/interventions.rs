//! Interventions that a person makes while work is in progress.

use std::time::Duration;

use crate::state::{Inbox, Intervention, StateError};

use super::error::Halt;

/// How often the inbox is read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An intervention that cannot wait for the end of the iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// End the run now.
    Stop,
    /// End this iteration with what it has.
    Rotate,
}

/// Waits for an intervention that cannot wait, and removes it from the inbox. Others stay there.
pub(super) async fn next_interruption(inbox: &Inbox) -> Result<Interruption, StateError> {
    wait_for(inbox, |intervention| match intervention {
        Intervention::Stop => Some(Interruption::Stop),
        Intervention::Rotate => Some(Interruption::Rotate),
        Intervention::Pause | Intervention::Note { .. } | Intervention::Doctor => None,
    })
    .await
}

/// Waits until a person stops the run. Returns the halt, or the error that made the inbox unreadable.
pub(super) async fn until_stopped(inbox: &Inbox) -> Halt {
    let stop = |intervention: &Intervention| (*intervention == Intervention::Stop).then_some(());
    let stopped = wait_for(inbox, stop).await;
    stopped.map_or_else(Halt::from, |()| Halt::stopped())
}

async fn wait_for<T>(inbox: &Inbox, wanted: impl Fn(&Intervention) -> Option<T>) -> Result<T, StateError> {
    loop {
        for (path, intervention) in inbox.pending()? {
            if let Some(found) = wanted(&intervention) {
                inbox.remove(&path)?;
                return Ok(found);
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
