//! Waits for the guest agent of a VM that was started.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::vm::host_cli;
use super::super::{SandboxError, SandboxErrorKind};
use super::cli::{Tart, TartRun, command};
use super::{MAX_RUNNING_MACS, too_many_macs, unavailable};

/// The pause between two polls: short at first, because a VM that was cloned from a suspended one is ready at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Limit for one poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(10);

/// What macOS prints when Apple's limit of running VMs is reached.
const LIMIT_REACHED: &str = "exceeds the system limit";

/// Waits until commands can be run in a VM. Fails early if its `tart run` exits.
pub(super) async fn wait_until_ready(
    tart: &Tart,
    vm: &str,
    run: &TartRun,
    timeout: Duration,
) -> Result<(), SandboxError> {
    let deadline = Instant::now() + timeout;
    let mut pause = FIRST_PAUSE;
    loop {
        let poll = command(["exec", vm, "true"]).timeout(POLL_TIMEOUT);
        let exit = host_cli::try_run(&tart.host, poll).await?;
        if exit.success() {
            return Ok(());
        }
        if !run.is_alive() {
            return Err(exited(run));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // The VM may still be starting, and a running VM cannot be removed.
            run.end().await;
            return Err(unavailable(&format!(
                "the guest agent in the VM `{vm}` did not respond within {timeout:?}: {}",
                exit.stderr.text().trim()
            ))
            .with_hint(Some(
                "install the Tart Guest Agent in the image, or raise `timers.boot_seconds`",
            )));
        }
        sleep(pause.min(left)).await;
        pause = MAX_PAUSE.min(2 * pause);
    }
}

fn exited(run: &TartRun) -> SandboxError {
    let output = run.output();
    if output.contains(LIMIT_REACHED) {
        return too_many_macs(MAX_RUNNING_MACS);
    }
    let message = format!("`tart run` exited before the VM was ready: {output}");
    SandboxError::new(SandboxErrorKind::Failed, message)
        .with_hint(Some("run `tart run` by hand to see the screen of the VM"))
}
