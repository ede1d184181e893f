//! Waking workers: by notifications of Postgres, and by looking again after two seconds in any case.

use std::time::Duration;

use sqlx::postgres::PgListener;

use super::pool::StorePool;
use super::{Store, StoreError};
use crate::text::error_chain;

/// The channel of notifications.
const CHANNEL: &str = "ralph_queue";

/// How long a worker waits at most before it looks at the queue again. Leases end without a notification.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Wakes one worker when there may be something to claim.
#[derive(Debug)]
pub struct WorkSignal {
    listener: Option<PgListener>,
}

impl Store {
    /// Listens for new work. Call it before the first claim, so that nothing is missed in between.
    pub async fn listen(&self) -> Result<WorkSignal, StoreError> {
        let listener = match &self.pool {
            StorePool::Sqlite(_) => None,
            StorePool::Postgres(pool) => {
                let failed = || StoreError::statement("listen for work");
                let mut listener = PgListener::connect_with(pool).await.map_err(failed())?;
                listener.listen(CHANNEL).await.map_err(failed())?;
                Some(listener)
            }
        };
        Ok(WorkSignal { listener })
    }

    /// Lets waiting workers look at the queue now. If that fails they look after two seconds.
    pub(super) async fn wake_workers(&self) {
        let StorePool::Postgres(pool) = &self.pool else {
            return;
        };
        let notify = sqlx::query("SELECT pg_notify($1, '')").bind(CHANNEL);
        if let Err(error) = notify.execute(pool).await {
            tracing::warn!(error = %error_chain(&error), "cannot wake workers; they look at the queue every two seconds");
        }
    }
}

impl WorkSignal {
    /// Returns when there may be work, after two seconds at the latest. A lost connection is opened again; until then
    /// workers look every two seconds.
    pub async fn wait_for_work(&mut self) {
        let Some(listener) = &mut self.listener else {
            return tokio::time::sleep(LONGEST_WAIT).await;
        };
        let notified = async {
            if let Err(error) = listener.recv().await {
                tracing::warn!(error = %error_chain(&error), "cannot listen for work; looking every two seconds");
                std::future::pending::<()>().await;
            }
        };
        // The time over is the floor, not a failure.
        let _ = tokio::time::timeout(LONGEST_WAIT, notified).await;
    }
}
