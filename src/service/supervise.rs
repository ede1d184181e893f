//! The parts of a service: one that fails does not end the others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::assembly::{AssemblyError, AssemblyReporter};

use super::issue_work::{WorkOrder, asked_for};

/// How long a part that failed is left alone.
const RESTART_PAUSE: Duration = Duration::from_secs(10);

/// Keeps a part of a service at work until `orders` ask for an end. If it fails or panics, that is reported, and it is started
/// again after a pause. `name` is for people.
pub(crate) async fn keep_going<W>(
    reporter: Arc<dyn AssemblyReporter>,
    name: &str,
    mut orders: watch::Receiver<WorkOrder>,
    start: impl Fn(watch::Receiver<WorkOrder>) -> W,
) where
    W: Future<Output = Result<usize, AssemblyError>> + Send + 'static,
{
    loop {
        let reason = match tokio::spawn(start(orders.clone())).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => reason_of(&error),
            Err(broken) => broken.to_string(),
        };
        let seconds = RESTART_PAUSE.as_secs();
        reporter.warn(&format!(
            "{name} stopped and starts again in {seconds} s: {reason}"
        ));
        tokio::select! {
            () = sleep(RESTART_PAUSE) => {}
            () = asked_for(&mut orders, WorkOrder::Pause) => return,
        }
    }
}

/// Why something failed and what to do next, for people.
pub(super) fn reason_of(error: &AssemblyError) -> String {
    match error.hint() {
        Some(hint) => format!("{error} (hint: {hint})"),
        None => error.to_string(),
    }
}
