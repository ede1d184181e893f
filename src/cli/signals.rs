//! Ctrl-C and SIGTERM.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::CliError;

/// Both signals, watched from creation on, so that no second one is missed.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn watch() -> Result<Self, CliError> {
        let watched = |error: io::Error| CliError::runtime(format!("cannot watch signals: {error}"));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(watched)?,
            terminate: signal(SignalKind::terminate()).map_err(watched)?,
        })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
