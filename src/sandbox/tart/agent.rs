//! Waits for the guest agent of a machine that was started.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::machine::tool;
use super::super::{SandboxError, SandboxErrorKind};
use super::cli::{RunChild, Tart, command};
use super::{MOST_MACS, too_many_macs, unavailable};

/// How often it is asked, and how soon again at first: what was cloned from a machine at rest is there at once.
const PAUSE: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How long one question may take.
const ASKING: Duration = Duration::from_secs(10);

/// What the system says when Apple's limit is reached, which it counts itself.
const OVER_THE_LIMIT: &str = "exceeds the system limit";

/// Waits until commands can be run in a machine. One whose `tart run` has ended is not waited for.
pub(super) async fn answers(
    tart: &Tart,
    name: &str,
    child: &RunChild,
    patience: Duration,
) -> Result<(), SandboxError> {
    let give_up = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    loop {
        let question = command(["exec", name, "true"]).timeout(ASKING);
        let (_, exit) = tool::try_run(&tart.host, question).await?;
        if exit.success() {
            return Ok(());
        }
        if !child.lives() {
            return Err(ended(child));
        }
        let left = give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // It may be about to start, and what runs cannot be removed.
            child.end().await;
            return Err(unavailable(&format!(
                "the guest agent in `{name}` did not answer within {patience:?}: {}; the image needs the Tart Guest \
                 Agent, and timers.boot_seconds can be raised",
                exit.stderr.text().trim()
            )));
        }
        sleep(pause.min(left)).await;
        pause = PAUSE.min(2 * pause);
    }
}

fn ended(child: &RunChild) -> SandboxError {
    let said = child.last_words();
    if said.contains(OVER_THE_LIMIT) {
        return too_many_macs(MOST_MACS);
    }
    let message = format!("`tart run` failed: it exited before the VM was ready: {said}");
    SandboxError::new(SandboxErrorKind::Failed, message)
        .with_hint(Some("`tart run` by hand shows the screen of the VM"))
}
