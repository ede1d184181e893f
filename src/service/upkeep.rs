//! What a service does for the store, seldom.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::assembly::AssemblyReporter;
use crate::store::Store;

use super::issue_work::{WorkOrder, asked_for};

/// How often runs that ended long ago are looked for.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Removes runs from the queue that ended more than `age` ago, at once and then every hour, until `orders` ask for an end. Two
/// services that do so on one store do not disturb each other.
pub(crate) async fn remove_ended_runs(
    reporter: Arc<dyn AssemblyReporter>,
    store: Store,
    age: Duration,
    mut orders: watch::Receiver<WorkOrder>,
) {
    loop {
        match store.remove_ended(age).await {
            Ok(0) => {}
            Ok(count) => {
                let days = age.as_secs() / (24 * 60 * 60);
                reporter.inform(&format!(
                    "removed {count} runs from the queue that ended more than {days} days ago"
                ));
            }
            // The store may answer next time.
            Err(error) => reporter.warn(&format!("cannot remove ended runs from the queue: {error}")),
        }
        tokio::select! {
            () = sleep(INTERVAL) => {}
            () = asked_for(&mut orders, WorkOrder::Pause) => return,
        }
    }
}
