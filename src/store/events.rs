//! The events of runs, mirrored by their workers, so that other hosts can list them.

use super::lease::storable;
use super::queue::{signed, unsigned};
use super::{LeaseState, QueueClaim, Store, StoreError, in_transaction, on_pool};
use crate::id::RunId;

/// The position of an event of a run in the store. Later events have greater ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPosition {
    /// The epoch of the worker that mirrored it.
    pub epoch: u64,
    /// Its number among the events of that worker, from 1.
    pub number: u64,
}

/// A file with the events of a run on one host, and how much of it the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFile {
    /// Its host and path: each host has a file of its own for a run.
    pub name: String,
    /// In bytes, from its start.
    pub mirrored: u64,
}

/// Until the transaction ends no other worker can claim the run.
const HOLD: &str = "SELECT epoch FROM queue WHERE run = $1 AND epoch = $2 AND state = 'running' {for_share}";

const MARK_FILE: &str = "
    INSERT INTO event_files (run, file, mirrored) VALUES ($1, $2, $3)
    ON CONFLICT (run, file) DO UPDATE SET mirrored = excluded.mirrored";

const MIRRORED: &str = "SELECT mirrored FROM event_files WHERE run = $1 AND file = $2";

const LIST: &str = "
    SELECT epoch, number, event FROM events WHERE run = $1 AND (epoch, number) > ($2, $3)
    ORDER BY epoch, number LIMIT $4";

impl Store {
    /// Adds events of a claimed run, each as JSON, and marks how much of their file the store has now. The first event has
    /// this number. Adding one twice is harmless. A worker that lost the run adds nothing. Meanwhile the lease cannot be
    /// renewed, so there should not be more than some hundred.
    pub async fn add_events(
        &self,
        claim: &QueueClaim,
        first: u64,
        events: &[String],
        file: &EventFile,
    ) -> Result<LeaseState, StoreError> {
        let (sql, add) = (self.sql(HOLD), add_statement(events.len()));
        let (run, epoch) = (claim.run.as_str(), signed(claim.epoch));
        let done = in_transaction!(self, tx => {
            let held: Option<i64> =
                sqlx::query_scalar(&sql).bind(run).bind(epoch).fetch_optional(&mut *tx).await?;
            if held.is_some() && !events.is_empty() {
                let mut query = sqlx::query(&add).bind(run).bind(epoch);
                for (number, event) in (first..).zip(events) {
                    query = query.bind(signed(number)).bind(storable(event));
                }
                query.execute(&mut *tx).await?;
            }
            if held.is_some() {
                let query = sqlx::query(MARK_FILE).bind(run).bind(&file.name);
                query.bind(signed(file.mirrored)).execute(&mut *tx).await?;
            }
            held
        });
        let held = done.map_err(StoreError::statement("mirror events"))?;
        Ok(held.map_or(LeaseState::Lost, |_| LeaseState::Held))
    }

    /// How much of a file with the events of a run the store has, in bytes.
    pub async fn mirrored_events(&self, run: &RunId, file: &str) -> Result<u64, StoreError> {
        let mirrored: Option<i64> = on_pool!(self, pool => {
            sqlx::query_scalar(MIRRORED).bind(run.as_str()).bind(file).fetch_optional(pool).await
        })
        .map_err(StoreError::statement("read what is mirrored"))?;
        mirrored.map_or(Ok(0), unsigned)
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

/// Inserts so many events with one statement.
fn add_statement(events: usize) -> String {
    let rows: Vec<String> = (0..events)
        .map(|row| format!("($1, $2, ${}, ${})", 2 * row + 3, 2 * row + 4))
        .collect();
    let rows = rows.join(", ");
    format!(
        "INSERT INTO events (run, epoch, number, event) VALUES {rows} ON CONFLICT (run, epoch, number) DO NOTHING"
    )
}
