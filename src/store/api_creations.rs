//! Creations of runs with an idempotency key: the same request again creates nothing new.

use std::time::Duration;

use super::queue::milliseconds;
use super::{Store, StoreError, in_transaction};
use crate::digest::Digest;
use crate::id::RunId;

/// How long a key is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// What is known about a creation with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiCreation {
    /// Nothing: it may be done now.
    New,
    /// It was done, and this is the run.
    Done(RunId),
    /// It is being done, or the service ended in the middle of it. This is the run that it makes.
    Pending(RunId),
    /// The key was used for another request.
    Other,
}

const FORGET_OLD: &str = "DELETE FROM api_creations WHERE created_at < {now} - $1";

const BEGIN: &str = "
    INSERT INTO api_creations (caller, creation_key, request, planned, created_at) VALUES ($1, $2, $3, $4, {now})
    ON CONFLICT DO NOTHING";

const LOOK_UP: &str =
    "SELECT request, COALESCE(planned, ''), run FROM api_creations WHERE caller = $1 AND creation_key = $2";

const FINISH: &str = "UPDATE api_creations SET run = $3 WHERE caller = $1 AND creation_key = $2";

const ABANDON: &str = "DELETE FROM api_creations WHERE caller = $1 AND creation_key = $2 AND run IS NULL";

impl Store {
    /// Begins the creation of this run, unless this caller used the key before.
    pub async fn begin_creation(
        &self,
        caller: &str,
        key: &str,
        request: &Digest,
        planned: &RunId,
    ) -> Result<ApiCreation, StoreError> {
        let [forget, begin] = [FORGET_OLD, BEGIN].map(|statement| self.sql(statement));
        let request = request.to_string();
        let found = in_transaction!(self, tx => {
            sqlx::query(&forget).bind(milliseconds(REMEMBERED)).execute(&mut *tx).await?;
            let inserted = sqlx::query(&begin).bind(caller).bind(key).bind(&request).bind(planned.as_str())
                .execute(&mut *tx).await?;
            let row: Option<(String, String, Option<String>)> = if inserted.rows_affected() > 0 {
                None
            } else {
                sqlx::query_as(LOOK_UP).bind(caller).bind(key).fetch_optional(&mut *tx).await?
            };
            row
        });
        match found.map_err(StoreError::statement("begin a creation"))? {
            None => Ok(ApiCreation::New),
            Some((other, ..)) if other != request => Ok(ApiCreation::Other),
            // One of an older ralph, which planned no run.
            Some((_, before, None)) if before.is_empty() => Ok(ApiCreation::Pending(planned.clone())),
            Some((_, before, None)) => Ok(ApiCreation::Pending(
                RunId::parse(&before).map_err(StoreError::row)?,
            )),
            Some((.., Some(run))) => Ok(ApiCreation::Done(RunId::parse(&run).map_err(StoreError::row)?)),
        }
    }

    /// Records the run that a creation made.
    pub async fn finish_creation(&self, caller: &str, key: &str, run: &RunId) -> Result<(), StoreError> {
        let done = in_transaction!(self, tx => {
            sqlx::query(FINISH).bind(caller).bind(key).bind(run.as_str()).execute(&mut *tx).await?;
        });
        done.map_err(StoreError::statement("finish a creation"))
    }

    /// Forgets a creation that failed, so that it can be tried again.
    pub async fn abandon_creation(&self, caller: &str, key: &str) -> Result<(), StoreError> {
        let done = in_transaction!(self, tx => {
            sqlx::query(ABANDON).bind(caller).bind(key).execute(&mut *tx).await?;
        });
        done.map_err(StoreError::statement("abandon a creation"))
    }
}
