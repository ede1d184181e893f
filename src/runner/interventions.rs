//! Interventions that a person makes while work is in progress.

use std::time::Duration;

use crate::state::{Inbox, Intervention, StateError};

use super::error::Halt;

/// How often the inbox is read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until a person asks for a fresh iteration. That a person stops the run meanwhile is an error.
pub(super) async fn until_rotated(inbox: &Inbox) -> Result<(), Halt> {
    let ends_iteration =
        |intervention: &Intervention| matches!(intervention, Intervention::Stop | Intervention::Rotate);
    match wait_for(inbox, ends_iteration).await? {
        Intervention::Stop => Err(Halt::stopped()),
        _ => Ok(()),
    }
}

/// Waits until a person stops the run. Returns the halt, or the error that made the inbox unreadable.
pub(super) async fn until_stopped(inbox: &Inbox) -> Halt {
    let stopped = wait_for(inbox, |intervention| *intervention == Intervention::Stop).await;
    stopped.map_or_else(Halt::from, |_| Halt::stopped())
}

/// Waits for an intervention, and removes it from the inbox. Others stay there.
async fn wait_for(
    inbox: &Inbox,
    is_wanted: impl Fn(&Intervention) -> bool,
) -> Result<Intervention, StateError> {
    loop {
        for (path, intervention) in inbox.pending()? {
            if is_wanted(&intervention) {
                inbox.remove(&path)?;
                return Ok(intervention);
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
