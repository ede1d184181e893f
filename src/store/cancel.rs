//! Runs that a person takes out of the queue before a worker claims them.

use super::lease::storable;
use super::{Store, StoreError, on_pool};
use crate::id::RunId;

/// With a new epoch, so that a worker that had the run before is shut out too.
const CANCEL: &str = "
    UPDATE queue SET state = 'finished', outcome = 'stopped', reason = $2, owner = NULL, ended_at = {now},
      epoch = 1 + (SELECT CASE WHEN epoch_floor > queue.epoch THEN epoch_floor ELSE queue.epoch END FROM ralph_store)
    WHERE run = $1 AND state IN ('queued', 'needs_person')";

impl Store {
    /// Takes a run out of the queue that no worker has claimed. Returns whether there was one. It can be queued again.
    pub async fn cancel_queued(&self, run: &RunId, reason: &str) -> Result<bool, StoreError> {
        let sql = self.sql(CANCEL);
        let done = on_pool!(self, pool => {
            let query = sqlx::query(&sql).bind(run.as_str()).bind(storable(reason));
            query.execute(pool).await.map(|done| done.rows_affected())
        });
        Ok(done.map_err(StoreError::statement("take a run out of the queue"))? > 0)
    }
}
