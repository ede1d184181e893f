//! The events of runs, mirrored by their workers, so that other hosts can list them.

use super::lease::storable;
use super::queue::{signed, unsigned};
use super::{QueueClaim, Store, StoreError, in_transaction, on_pool};
use crate::id::RunId;

/// The position of an event of a run in the store. Later events have greater ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPosition {
    /// The epoch of the worker that mirrored it.
    pub epoch: u64,
    /// Its number among the events of that worker, from 1.
    pub number: u64,
}

/// A worker that lost the run mirrors nothing.
const ADD: &str = "
    INSERT INTO events (run, epoch, number, event)
    SELECT $1, $2, $3, $4 WHERE EXISTS (SELECT 1 FROM queue WHERE run = $1 AND epoch = $2)
    ON CONFLICT (run, epoch, number) DO NOTHING";

const LIST: &str = "
    SELECT epoch, number, event FROM events WHERE run = $1 AND (epoch > $2 OR (epoch = $2 AND number > $3))
    ORDER BY epoch, number LIMIT $4";

impl Store {
    /// Adds events of a claimed run, each as JSON. The first one has this number. Adding one twice is harmless.
    pub async fn add_events(
        &self,
        claim: &QueueClaim,
        first: u64,
        events: &[String],
    ) -> Result<(), StoreError> {
        let sql = self.sql(ADD);
        let done = in_transaction!(self, tx => {
            for (number, event) in (first..).zip(events) {
                let query = sqlx::query(&sql)
                    .bind(claim.run.as_str())
                    .bind(signed(claim.epoch))
                    .bind(signed(number))
                    .bind(storable(event));
                query.execute(&mut *tx).await?;
            }
        });
        done.map_err(StoreError::statement("mirror events"))
    }

    /// Up to `limit` events of a run after a position, oldest first, each as JSON.
    pub async fn events(
        &self,
        run: &RunId,
        after: EventPosition,
        limit: u32,
    ) -> Result<Vec<(EventPosition, String)>, StoreError> {
        let rows: Vec<(i64, i64, String)> = on_pool!(self, pool => {
            let query = sqlx::query_as(LIST)
                .bind(run.as_str())
                .bind(signed(after.epoch))
                .bind(signed(after.number))
                .bind(i64::from(limit));
            query.fetch_all(pool).await
        })
        .map_err(StoreError::statement("list events"))?;
        let rows = rows.into_iter();
        rows.map(|(epoch, number, event)| {
            let position = EventPosition {
                epoch: unsigned(epoch)?,
                number: unsigned(number)?,
            };
            Ok((position, event))
        })
        .collect()
    }
}
