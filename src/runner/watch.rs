//! Listening for a person's requests while work goes on.

use std::time::Duration;

use crate::state::{Inbox, Intervention, StateError};

/// How often the inbox is looked at.
const EVERY: Duration = Duration::from_millis(100);

/// A request that cannot wait for the end of the iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgent {
    /// End now.
    Stop,
    /// End this iteration with what it has.
    Rotate,
}

/// Waits until a request comes that cannot wait. Others stay in the inbox.
pub(super) async fn urgent(inbox: &Inbox) -> Result<Urgent, StateError> {
    wait_for(inbox, |request| match request {
        Intervention::Stop => Some(Urgent::Stop),
        Intervention::Rotate => Some(Urgent::Rotate),
        Intervention::Pause | Intervention::Note { .. } | Intervention::Doctor => None,
    })
    .await
}

/// Waits until a person wants the run to end now.
pub(super) async fn stopped(inbox: &Inbox) -> Result<(), StateError> {
    wait_for(inbox, |request| (*request == Intervention::Stop).then_some(())).await
}

async fn wait_for<T>(inbox: &Inbox, wanted: impl Fn(&Intervention) -> Option<T>) -> Result<T, StateError> {
    loop {
        for (path, request) in inbox.waiting()? {
            if let Some(found) = wanted(&request) {
                inbox.done_with(&path)?;
                return Ok(found);
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}
