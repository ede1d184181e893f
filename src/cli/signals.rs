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

/// Whether this process was started with SIGHUP ignored. Read from `/proc` on Linux; elsewhere a child process, which inherits it, is
/// asked.
async fn ignores_hangup(host: &Host) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(ignored) = ignored_signals(&status) {
        return ignored & HANGUP != 0;
    }
    let probe = Command::shell("kill -s HUP $$");
    let exit = host.run(&probe, &mut Discard).await;
    exit.is_ok_and(|exit| exit.success())
}

/// SIGHUP in a set of signals, in which signal 1 is the lowest bit.
const HANGUP: u64 = 1;

/// The set of signals that a process ignores, from its status file.
fn ignored_signals(status: &str) -> Option<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_process_names_the_signals_that_it_ignores() {
        let status = "Name:\tralph\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert_eq!(ignored_signals(status), Some(0x1001));
        assert_eq!(ignored_signals("Name:\tralph\n"), None);
    }
}
