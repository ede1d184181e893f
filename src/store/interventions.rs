//! What people ask of runs that another host works on: an inbox in the store, which the worker of the run empties into the
//! run's own.

use super::lease::storable;
use super::{Store, StoreError, on_pool};
use crate::id::RunId;
use crate::state::InterventionRequest;

const LEAVE: &str = "
    INSERT INTO interventions (id, run, request, left_at) VALUES ($1, $2, $3, {now}) ON CONFLICT (id) DO NOTHING";

const WAITING: &str =
    "SELECT request FROM interventions WHERE run = $1 AND moved_at IS NULL ORDER BY left_at, id";

const MOVED: &str = "UPDATE interventions SET moved_at = {now} WHERE id = $1 AND moved_at IS NULL";

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

    /// The requests for a run that no worker has moved to the run yet, oldest first.
    pub async fn waiting_interventions(&self, run: &RunId) -> Result<Vec<InterventionRequest>, StoreError> {
        let rows: Vec<(String,)> = on_pool!(self, pool => {
            sqlx::query_as(WAITING).bind(run.as_str()).fetch_all(pool).await
        })
        .map_err(StoreError::statement("read the requests of a run"))?;
        let rows = rows.into_iter();
        rows.map(|(text,)| serde_json::from_str(&text).map_err(StoreError::row))
            .collect()
    }

    /// Marks a request that is in the run's own inbox now.
    pub async fn intervention_moved(&self, id: &str) -> Result<(), StoreError> {
        let sql = self.sql(MOVED);
        let done = on_pool!(self, pool => sqlx::query(&sql).bind(id).execute(pool).await.map(drop));
        done.map_err(StoreError::statement("mark a request"))
    }
}
