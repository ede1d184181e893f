//! Which workers have which runs. A worker that has none is not known: workers are processes that only claim.

use super::queue::unsigned;
use super::{Store, StoreError, on_pool};
use crate::id::RunId;

/// A run that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedRun {
    /// The run.
    pub run: RunId,
    /// The worker, for people.
    pub worker: String,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How long its lease lasts without a renewal, in milliseconds; negative after its end.
    pub lease_ms: i64,
}

const CLAIMED: &str = "
    SELECT run, COALESCE(owner, ''), attempts, due_at - {now} FROM queue WHERE state = 'running' ORDER BY owner, run";

impl Store {
    /// All runs that workers have claimed, by worker.
    pub async fn claimed_runs(&self) -> Result<Vec<ClaimedRun>, StoreError> {
        let sql = self.sql(CLAIMED);
        let rows: Vec<(String, String, i64, i64)> =
            on_pool!(self, pool => sqlx::query_as(&sql).fetch_all(pool).await)
                .map_err(StoreError::statement("list the workers"))?;
        let rows = rows.into_iter();
        rows.map(|(run, worker, attempt, lease_ms)| {
            Ok(ClaimedRun {
                run: RunId::parse(&run).map_err(StoreError::row)?,
                worker,
                attempt: unsigned(attempt)?,
                lease_ms,
            })
        })
        .collect()
    }
}
