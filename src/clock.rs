//! The wall clock. Nothing else in the crate reads it.

use std::sync::Arc;

use jiff::Timestamp;

/// A source of the wall-clock time. It is passed in, so that a test can choose the time.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The clock of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The clock of the host, shared.
#[must_use]
pub fn system() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}
