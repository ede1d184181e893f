//! Ctrl-C, SIGTERM and SIGHUP.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exec::{Command, Discard, Host};
use crate::service::WorkOrder;

use super::CliError;
use super::ui::Ui;

/// The signals that ask for an end, watched from creation on, so that no second one is missed.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if it was ignored when the process started, as under `nohup`.
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) async fn watch(host: &Host) -> Result<Self, CliError> {
        let watched = |error: io::Error| CliError::runtime(format!("cannot watch signals: {error}"));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(watched)?,
            terminate: signal(SignalKind::terminate()).map_err(watched)?,
            hangup: if ignores_hangup(host).await {
                None
            } else {
                Some(signal(SignalKind::hangup()).map_err(watched)?)
            },
        })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            Some(()) = next_of(self.hangup.as_mut()) => {}
        }
    }

    /// Passes signals on as orders: the first one sends `first`, the second one ends the work at once. `said` is shown with
    /// them. Returns at the third one, which waits for nothing.
    pub(super) async fn forward(
        mut self,
        ui: Ui,
        order: &watch::Sender<WorkOrder>,
        first: WorkOrder,
        said: [&str; 2],
    ) {
        for (order_now, text) in [first, WorkOrder::End].into_iter().zip(said) {
            self.next().await;
            ui.say(text);
            order.send_replace(order_now);
        }
        self.next().await;
    }

    /// Does `work`. A signal drops it, which ends its processes; the hint says how to go on.
    pub(super) async fn or_interrupted<T>(
        &mut self,
        hint: &str,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        tokio::select! {
            done = work => done,
            () = self.next() => Err(CliError::interrupted("interrupted").with_hint(hint)),
        }
    }
}

async fn next_of(signal: Option<&mut Signal>) -> Option<()> {
    signal?.recv().await
}

/// Whether this process was started with SIGHUP ignored. A child process inherits that, and shows it on every system.
async fn ignores_hangup(host: &Host) -> bool {
    let probe = Command::shell("kill -s HUP $$");
    let exit = host.run(&probe, &mut Discard).await;
    exit.is_ok_and(|exit| exit.success())
}
