//! How many runs a process works on at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The runs that a process may work on at the same time. Clones share them, so a worker and a poller in one process have one
/// limit.
#[derive(Clone, Debug)]
pub(crate) struct RunSlots(Arc<Semaphore>);

/// The right to work on one run, until it is dropped.
pub(crate) type RunSlot = OwnedSemaphorePermit;

impl RunSlots {
    pub(crate) fn new(count: u16) -> Self {
        Self(Arc::new(Semaphore::new(usize::from(count))))
    }

    /// A slot, if one is free.
    pub(super) fn take(&self) -> Option<RunSlot> {
        self.0.clone().try_acquire_owned().ok()
    }

    /// Waits until one is free.
    pub(super) async fn wait_until_free(&self) {
        // Fails only if the semaphore is closed, which it never is.
        drop(self.0.acquire().await);
    }
}
