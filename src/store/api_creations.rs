//! Creations of runs with an idempotency key: the same request again creates nothing new, also with several services.

use std::time::Duration;

use super::lease::lease_state;
use super::queue::milliseconds;
use super::{LeaseState, Store, StoreError, in_transaction, on_pool};
use crate::digest::Digest;
use crate::id::RunId;

/// How long a key is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a service has a creation without a renewal.
const CREATION_LEASE: Duration = Duration::from_secs(5);

/// One request to create a run with a key.
#[derive(Clone, Debug)]
pub struct CreationAttempt {
    /// Who asks.
    pub caller: String,
    /// The key, which the caller chose.
    pub key: String,
    /// The whole request.
    pub request: Digest,
    /// A random id. The run gets it if this is the first attempt; later ones only prove with it which of them has the creation.
    pub proposed: RunId,
}

/// What is known about a creation with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiCreation {
    /// This attempt has it now, and makes this run. An earlier one that was cut off may have made it already.
    Taken(RunId),
    /// It was done, and this is the run.
    Done(RunId),
    /// Another attempt has it, in this service or another one.
    AtWork,
    /// The key was used for another request.
    Other,
}

const FORGET_OLD: &str = "DELETE FROM api_creations WHERE created_at < {now} - $1";

/// A creation that was cut off is taken over when its lease has ended. One of an older ralph planned no run.
const TAKE: &str = "
    INSERT INTO api_creations AS known (caller, creation_key, request, planned, owner, due_at, created_at)
    VALUES ($1, $2, $3, $4, $4, {now} + $5, {now})
    ON CONFLICT (caller, creation_key) DO UPDATE SET owner = excluded.owner, due_at = excluded.due_at,
      planned = COALESCE(known.planned, excluded.planned)
    WHERE known.run IS NULL AND known.request = excluded.request AND known.due_at <= {now}
    RETURNING planned";

const LOOK_UP: &str = "SELECT request, run FROM api_creations WHERE caller = $1 AND creation_key = $2";

const RENEW: &str = "
    UPDATE api_creations SET due_at = {now} + $4 WHERE caller = $1 AND creation_key = $2 AND owner = $3 AND run IS NULL";

const FINISH: &str =
    "UPDATE api_creations SET run = $4 WHERE caller = $1 AND creation_key = $2 AND owner = $3";

const ABANDON: &str =
    "DELETE FROM api_creations WHERE caller = $1 AND creation_key = $2 AND owner = $3 AND run IS NULL";

impl Store {
    /// Takes a creation, unless it was done or another attempt has it.
    pub async fn begin_creation(&self, attempt: &CreationAttempt) -> Result<ApiCreation, StoreError> {
        let [forget, take] = [FORGET_OLD, TAKE].map(|statement| self.sql(statement));
        let (caller, key) = (&attempt.caller, &attempt.key);
        let request = attempt.request.to_string();
        let found = in_transaction!(self, tx => {
            sqlx::query(&forget).bind(milliseconds(REMEMBERED)).execute(&mut *tx).await?;
            let query = sqlx::query_scalar(&take).bind(caller).bind(key).bind(&request);
            let query = query.bind(attempt.proposed.as_str()).bind(milliseconds(CREATION_LEASE));
            let taken: Option<String> = query.fetch_optional(&mut *tx).await?;
            let known: Option<(String, Option<String>)> =
                sqlx::query_as(LOOK_UP).bind(caller).bind(key).fetch_optional(&mut *tx).await?;
            (taken, known)
        });
        let parse = |run: String| RunId::parse(&run).map_err(StoreError::row);
        match found.map_err(StoreError::statement("begin a creation"))? {
            (Some(run), _) => Ok(ApiCreation::Taken(parse(run)?)),
            (None, Some((other, _))) if other != request => Ok(ApiCreation::Other),
            (None, Some((_, Some(run)))) => Ok(ApiCreation::Done(parse(run)?)),
            (None, _) => Ok(ApiCreation::AtWork),
        }
    }

    /// Extends the time for which no other attempt takes the creation.
    pub async fn renew_creation(&self, attempt: &CreationAttempt) -> Result<LeaseState, StoreError> {
        let sql = self.sql(RENEW);
        let rows = on_pool!(self, pool => {
            let query = sqlx::query(&sql).bind(&attempt.caller).bind(&attempt.key).bind(attempt.proposed.as_str());
            let done = query.bind(milliseconds(CREATION_LEASE)).execute(pool).await;
            done.map(|done| done.rows_affected())
        });
        let rows = rows.map_err(StoreError::statement("renew a creation"))?;
        Ok(lease_state(rows))
    }

    /// Records the run that a creation made, unless another attempt has taken it over.
    pub async fn finish_creation(&self, attempt: &CreationAttempt, run: &RunId) -> Result<(), StoreError> {
        let done = on_pool!(self, pool => {
            let query = sqlx::query(FINISH).bind(&attempt.caller).bind(&attempt.key).bind(attempt.proposed.as_str());
            query.bind(run.as_str()).execute(pool).await.map(drop)
        });
        done.map_err(StoreError::statement("finish a creation"))
    }

    /// Forgets a creation that failed, so that it can be tried again, unless another attempt has taken it over.
    pub async fn abandon_creation(&self, attempt: &CreationAttempt) -> Result<(), StoreError> {
        let done = on_pool!(self, pool => {
            let query = sqlx::query(ABANDON).bind(&attempt.caller).bind(&attempt.key).bind(attempt.proposed.as_str());
            query.execute(pool).await.map(drop)
        });
        done.map_err(StoreError::statement("abandon a creation"))
    }
}
