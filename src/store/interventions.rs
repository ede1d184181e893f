//! What people ask of runs that another host works on: an inbox in the store, which the worker of the run empties into the
//! run's own.

use super::lease::storable;
use super::queue::signed;
use super::{QueueClaim, Store, StoreError, on_pool};
use crate::id::RunId;
use crate::state::InterventionRequest;

const LEAVE: &str = "
    INSERT INTO interventions (id, run, request, left_at) VALUES ($1, $2, $3, {now}) ON CONFLICT (id) DO NOTHING";

/// Requests that no worker has moved, or only one with an earlier claim.
const WAITING: &str = "
    SELECT request, COALESCE(moved_epoch, -1) FROM interventions
    WHERE run = $1 AND (moved_epoch IS NULL OR moved_epoch < $2) ORDER BY left_at, id";

/// A worker that lost the run marks nothing: the request is still for the next one.
const MOVED: &str = "
    UPDATE interventions SET moved_at = {now}, moved_epoch = $3
    WHERE id = $1 AND EXISTS (SELECT 1 FROM queue WHERE run = $2 AND epoch = $3 AND state = 'running')";

/// A request for a run, as its worker gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingIntervention {
    /// What is asked.
    pub asked: InterventionRequest,
    /// Whether a worker with an earlier claim had it.
    pub was_moved: bool,
}

impl Store {
    /// Leaves a request for the worker of a run. Leaving one twice is harmless.
    pub async fn leave_intervention(
        &self,
        run: &RunId,
        request: &InterventionRequest,
    ) -> Result<(), StoreError> {
        let sql = self.sql(LEAVE);
        let text = serde_json::to_string(request).map_err(StoreError::row)?;
        let done = on_pool!(self, pool => {
            let query = sqlx::query(&sql).bind(&request.id).bind(run.as_str()).bind(storable(&text));
            query.execute(pool).await.map(drop)
        });
        done.map_err(StoreError::statement("leave a request"))
    }

    /// The requests that a worker has not moved to its run yet, oldest first.
    pub async fn interventions_for(
        &self,
        claim: &QueueClaim,
    ) -> Result<Vec<WaitingIntervention>, StoreError> {
        let rows: Vec<(String, i64)> = on_pool!(self, pool => {
            let query = sqlx::query_as(WAITING).bind(claim.run.as_str()).bind(signed(claim.epoch));
            query.fetch_all(pool).await
        })
        .map_err(StoreError::statement("read the requests of a run"))?;
        let rows = rows.into_iter();
        rows.map(|(text, moved_epoch)| {
            Ok(WaitingIntervention {
                asked: serde_json::from_str(&text).map_err(StoreError::row)?,
                was_moved: moved_epoch >= 0,
            })
        })
        .collect()
    }

    /// Marks a request that is in the run's own inbox now.
    pub async fn intervention_moved(&self, claim: &QueueClaim, id: &str) -> Result<(), StoreError> {
        let sql = self.sql(MOVED);
        let done = on_pool!(self, pool => {
            let query = sqlx::query(&sql).bind(id).bind(claim.run.as_str()).bind(signed(claim.epoch));
            query.execute(pool).await.map(drop)
        });
        done.map_err(StoreError::statement("mark a request"))
    }
}
