//! Listening for a person's requests while work goes on.

use std::time::Duration;

use crate::state::{Inbox, Request, StateError};

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
    loop {
        for (path, request) in inbox.waiting()? {
            let urgent = match request {
                Request::Stop => Urgent::Stop,
                Request::Rotate => Urgent::Rotate,
                Request::Pause | Request::Note { .. } | Request::Doctor => continue,
            };
            inbox.done_with(&path)?;
            return Ok(urgent);
        }
        tokio::time::sleep(EVERY).await;
    }
}
