//! Reports changes of the list of runs to clients.

use axum::extract::ws::Utf8Bytes;
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::id::RunId;
use crate::service::RunIndex;
use crate::store::{Store, StoreError};
use crate::text::error_chain;

use super::run_list::RunListEntry;

/// How many changes a client may be behind.
const BEHIND: usize = 1024;

/// Changes of the list, each as the text that all clients get.
pub(super) type RunNews = broadcast::Sender<Utf8Bytes>;

/// What a client gets that missed changes: it has to read the list again.
pub(super) fn missed() -> Utf8Bytes {
    Utf8Bytes::from_static("{\"topic\":\"runs\",\"missed\":true}")
}

pub(super) fn new_run_news() -> RunNews {
    broadcast::Sender::new(BEHIND)
}

/// Sends `{"topic": "runs", "run": .., "status": ..}` for each change, with `null` for a run that is gone, until the index is
/// dropped.
pub(super) fn report_changes(
    index: &RunIndex,
    store: Store,
    news: RunNews,
) -> impl Future<Output = ()> + use<> {
    let mut changes = index.changes();
    async move {
        loop {
            let message = match changes.recv().await {
                Ok(_) if news.receiver_count() == 0 => continue,
                Ok(run) => message(&store, &run).await.unwrap_or_else(|error| {
                    tracing::warn!(%run, error = %error_chain(&error), "cannot report a change of a run");
                    missed()
                }),
                Err(RecvError::Lagged(_)) => missed(),
                Err(RecvError::Closed) => return,
            };
            // Fails only if no client listens.
            let _ = news.send(message);
        }
    }
}

async fn message(store: &Store, run: &RunId) -> Result<Utf8Bytes, StoreError> {
    let status = store.listed_run(run).await?.map(RunListEntry::new);
    let message = json!({"topic": "runs", "run": run, "status": status});
    Ok(message.to_string().into())
}
