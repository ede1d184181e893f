//! What a worker does with a run that it claimed: renew, finish, release. Each write carries the epoch of the claim.

use std::time::Duration;

use super::queue::{QueueState, milliseconds, nanos, signed};
use super::{QueueClaim, Store, StoreError, in_transaction, on_pool};
use crate::state::RunOutcomeKind;
use crate::usage::Usd;

/// Whether a claim still holds. An error of the statement leaves that unknown: go on until the lease would have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum LeaseState {
    /// The write took effect.
    Held,
    /// Another worker has the run, or a person. Nothing was written, and nothing may be written elsewhere.
    Lost,
}

/// Why a worker gives a run back.
#[derive(Clone, Debug)]
pub enum QueueRelease {
    /// The worker shuts down. This attempt does not count.
    Shutdown,
    /// Another process of the host has the run. This attempt does not count.
    Busy {
        /// How long to wait first.
        retry_after: Duration,
        /// Which process, for people.
        reason: String,
    },
    /// The run could not start, and its host may be to blame. Counts as a failed start and not as an attempt.
    NotStarted {
        /// How long to wait first.
        retry_after: Duration,
        /// Why it did not start, for people.
        reason: String,
    },
    /// The attempt failed. Another one may start after a while.
    Failed {
        /// How long to wait first.
        retry_after: Duration,
        /// Why it failed, for people.
        reason: String,
    },
}

const RENEW: &str =
    "UPDATE queue SET due_at = {now} + $3 WHERE run = $1 AND epoch = $2 AND state = 'running'";

/// The same worker may finish twice: it does not know whether the first one took effect when its answer was lost.
const FINISH: &str = "
    UPDATE queue SET state = $3, owner = NULL, outcome = $4, reason = $5, ended_at = {now}
    WHERE run = $1 AND epoch = $2 AND state <> 'queued'";

const RELEASE: &str = "
    UPDATE queue SET state = 'queued', owner = NULL, due_at = {now} + $3, attempts = attempts - $4,
      failed_starts = failed_starts + $5, reason = $6
    WHERE run = $1 AND epoch = $2 AND state = 'running'";

/// What the run used on earlier days stays theirs.
const COUNT_USAGE: &str = "
    INSERT INTO spending (run, day, project, nanos)
    SELECT $1, {today}, $2, CAST($3 - COALESCE(SUM(nanos), 0) AS BIGINT) FROM spending WHERE run = $1 AND day < {today}
    ON CONFLICT (run, day) DO UPDATE SET nanos = excluded.nanos";

impl Store {
    /// Extends the lease from now on. `spent` is what the run used in all so far.
    pub async fn renew(
        &self,
        claim: &QueueClaim,
        lease: Duration,
        spent: Usd,
    ) -> Result<LeaseState, StoreError> {
        let (sql, usage_sql) = (self.sql(RENEW), self.sql(COUNT_USAGE));
        let rows = in_transaction!(self, tx => {
            let query = sqlx::query(&sql)
                .bind(claim.run.as_str())
                .bind(signed(claim.epoch))
                .bind(milliseconds(lease));
            let rows = query.execute(&mut *tx).await?.rows_affected();
            if rows > 0 && spent > Usd::ZERO {
                let query = sqlx::query(&usage_sql).bind(claim.run.as_str()).bind(&claim.project).bind(nanos(spent));
                query.execute(&mut *tx).await?;
            }
            rows
        });
        rows.map(lease_state)
            .map_err(StoreError::statement("renew a lease"))
    }

    /// Ends the run in the queue. A paused one waits for a person. `spent` is what it used in all.
    pub async fn finish(
        &self,
        claim: &QueueClaim,
        outcome: RunOutcomeKind,
        reason: &str,
        spent: Usd,
    ) -> Result<LeaseState, StoreError> {
        let state = match outcome {
            RunOutcomeKind::Done | RunOutcomeKind::Failed | RunOutcomeKind::Stopped => QueueState::Finished,
            RunOutcomeKind::Paused => QueueState::NeedsPerson,
        };
        let (sql, usage_sql) = (self.sql(FINISH), self.sql(COUNT_USAGE));
        let rows = in_transaction!(self, tx => {
            let query = sqlx::query(&sql)
                .bind(claim.run.as_str())
                .bind(signed(claim.epoch))
                .bind(state.as_str())
                .bind(outcome.to_string())
                .bind(storable(reason));
            let rows = query.execute(&mut *tx).await?.rows_affected();
            if rows > 0 && spent > Usd::ZERO {
                let query = sqlx::query(&usage_sql).bind(claim.run.as_str()).bind(&claim.project).bind(nanos(spent));
                query.execute(&mut *tx).await?;
            }
            rows
        });
        rows.map(lease_state)
            .map_err(StoreError::statement("finish a run"))
    }

    /// Gives the run back to the queue.
    pub async fn release(
        &self,
        claim: &QueueClaim,
        release: &QueueRelease,
    ) -> Result<LeaseState, StoreError> {
        let (uncounted, failed_starts) = match release {
            QueueRelease::Shutdown | QueueRelease::Busy { .. } => (1_i64, 0_i64),
            QueueRelease::NotStarted { .. } => (1, 1),
            QueueRelease::Failed { .. } => (0, 0),
        };
        let (wait, reason) = match release {
            QueueRelease::Shutdown => (Duration::ZERO, None),
            QueueRelease::Busy { retry_after, reason }
            | QueueRelease::NotStarted { retry_after, reason }
            | QueueRelease::Failed { retry_after, reason } => (*retry_after, Some(storable(reason))),
        };
        let sql = self.sql(RELEASE);
        let rows = on_pool!(self, pool => {
            let query = sqlx::query(&sql)
                .bind(claim.run.as_str())
                .bind(signed(claim.epoch))
                .bind(milliseconds(wait))
                .bind(uncounted)
                .bind(failed_starts)
                .bind(reason.as_deref());
            query.execute(pool).await.map(|done| done.rows_affected())
        });
        let state = rows
            .map(lease_state)
            .map_err(StoreError::statement("release a run"))?;
        if state == LeaseState::Held {
            self.wake_workers().await;
        }
        Ok(state)
    }
}

pub(super) fn lease_state(rows: u64) -> LeaseState {
    if rows > 0 {
        LeaseState::Held
    } else {
        LeaseState::Lost
    }
}

/// The text without the one character that Postgres does not store.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
