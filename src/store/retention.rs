//! What is removed from the store after some time.

use std::time::Duration;

use super::queue::milliseconds;
use super::{Store, StoreError, in_transaction};

/// A run that is submitted again later must get a higher epoch than it had.
const KEEP_EPOCHS: &str = "
    UPDATE ralph_store SET epoch_floor = (
      SELECT CASE WHEN COALESCE(MAX(epoch), 0) > epoch_floor THEN MAX(epoch) ELSE epoch_floor END FROM queue)";

const REMOVE_ENDED: &str = "DELETE FROM queue WHERE state = 'finished' AND ended_at < {now} - $1";

/// What a run used counts for its later days as long as it is in the queue.
const REMOVE_SPENDING: &str = "
    DELETE FROM spending WHERE day < {today} AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.run = spending.run)";

const REMOVE_EVENTS: &str =
    "DELETE FROM events WHERE NOT EXISTS (SELECT 1 FROM queue WHERE queue.run = events.run)";

const REMOVE_EVENT_FILES: &str =
    "DELETE FROM event_files WHERE NOT EXISTS (SELECT 1 FROM queue WHERE queue.run = event_files.run)";

const REMOVE_INTERVENTIONS: &str =
    "DELETE FROM interventions WHERE NOT EXISTS (SELECT 1 FROM queue WHERE queue.run = interventions.run)";

const RAISE_FLOOR: &str = "UPDATE ralph_store SET epoch_floor = $1 WHERE epoch_floor < $1";

impl Store {
    /// Removes runs from the queue that ended so long ago, with their events. Those that wait for a person stay. Returns their number.
    pub async fn remove_ended(&self, age: Duration) -> Result<u64, StoreError> {
        let [ended, spending] = [REMOVE_ENDED, REMOVE_SPENDING].map(|statement| self.sql(statement));
        let removed = in_transaction!(self, tx => {
            sqlx::query(KEEP_EPOCHS).execute(&mut *tx).await?;
            let removed = sqlx::query(&ended).bind(milliseconds(age)).execute(&mut *tx).await?;
            sqlx::query(&spending).execute(&mut *tx).await?;
            sqlx::query(REMOVE_EVENTS).execute(&mut *tx).await?;
            sqlx::query(REMOVE_EVENT_FILES).execute(&mut *tx).await?;
            sqlx::query(REMOVE_INTERVENTIONS).execute(&mut *tx).await?;
            removed.rows_affected()
        });
        removed.map_err(StoreError::statement("remove ended runs"))
    }

    /// Makes every new epoch higher than this one, which a state ref has.
    pub async fn raise_epochs(&self, highest_found: u64) -> Result<(), StoreError> {
        let floor = super::queue::signed(highest_found);
        let raised = in_transaction!(self, tx => {
            sqlx::query(RAISE_FLOOR).bind(floor).execute(&mut *tx).await?;
        });
        raised.map_err(StoreError::statement("raise the epochs"))
    }
}
