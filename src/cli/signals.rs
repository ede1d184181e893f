//! Ctrl-C and SIGTERM.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::CliError;

/// Watched from one moment on, so that none is missed between the first and the second.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn watch() -> Result<Self, CliError> {
        let watched = |error: io::Error| CliError::runtime(format!("signals cannot be watched: {error}"));
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
