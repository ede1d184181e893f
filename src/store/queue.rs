//! The queue: runs are submitted to it, and workers claim them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::{ColumnIndex, Decode, FromRow, Row, Type};

use super::label::to_json;
use super::{Label, Store, StoreError, in_transaction, on_pool};
use crate::id::RunId;
use crate::usage::Usd;

/// Where a run of the queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// It waits for a worker.
    Queued,
    /// A worker has claimed it.
    Running,
    /// It ended.
    Finished,
    /// It waits for a person: it paused, or too many attempts ended without a result.
    NeedsPerson,
}

impl QueueState {
    const ALL: [Self; 4] = [Self::Queued, Self::Running, Self::Finished, Self::NeedsPerson];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::NeedsPerson => "needs_person",
        }
    }
}

impl fmt::Display for QueueState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for QueueState {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| StoreError::row(format!("the queue has no state `{text}`")))
    }
}

/// A run to be queued.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The run.
    pub run: RunId,
    /// The project whose budget it counts against.
    pub project: String,
    /// What the worker needs to begin the run, as JSON.
    pub request: String,
    /// What it requires of a worker.
    pub labels: Vec<Label>,
    /// Higher ones are claimed first; within one priority the oldest.
    pub priority: i64,
    /// The earliest start.
    pub not_before: Option<Timestamp>,
    /// After so many attempts without a result it waits for a person.
    pub max_attempts: u32,
}

/// What a worker asks the queue for.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The worker, for people.
    pub worker: String,
    /// What it offers. A value of `*` matches every value.
    pub offers: Vec<Label>,
    /// How long the claim lasts without a renewal.
    pub lease: Duration,
    /// Amounts from which on nothing is claimed.
    pub limits: SpendingLimits,
}

/// Budgets across runs. A run that was claimed goes on: its own budget ends it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpendingLimits {
    /// What all runs together may use on one day (UTC).
    pub per_day: Option<Usd>,
    /// What the runs of one project may use on one day (UTC).
    pub per_project: Option<Usd>,
}

/// The right to drive a run until the lease ends. The epoch proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueClaim {
    /// The run.
    pub run: RunId,
    /// Higher than every epoch that the run had before.
    pub epoch: u64,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// What [`Submission::max_attempts`] was.
    pub max_attempts: u32,
    /// How often it could not start before, on any host, without that being counted as an attempt.
    pub failed_starts: u32,
    /// The project whose budget it counts against.
    pub project: String,
    /// What [`Submission::request`] was.
    pub request: String,
}

/// A run in the queue, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// The run.
    pub run: RunId,
    /// Where it is.
    pub state: QueueState,
    /// Its priority.
    pub priority: i64,
    /// The attempts so far.
    pub attempts: u32,
    /// The newest epoch.
    pub epoch: u64,
    /// The worker that has claimed it.
    pub owner: Option<String>,
    /// How it ended.
    pub outcome: Option<String>,
    /// Why it ended, or why the last attempt did.
    pub reason: Option<String>,
    /// What [`Submission::request`] was.
    pub request: String,
}

const SUBMIT: &str = "
    INSERT INTO queue (run, project, request, labels, state, priority, queued_at, due_at, attempts, max_attempts, epoch)
    VALUES ($1, $2, $3, $4, 'queued', $5, {now}, $6, 0, $7, 0)
    ON CONFLICT (run) DO NOTHING";

/// A run whose attempts are used up goes to a person, with a new epoch, so that its last worker is shut out too.
const CLAIM: &str = "
    UPDATE queue SET
      state = CASE WHEN attempts < max_attempts THEN 'running' ELSE 'needs_person' END,
      owner = CASE WHEN attempts < max_attempts THEN $1 END,
      reason = CASE WHEN attempts < max_attempts THEN reason
        ELSE 'no attempt ended with a result (' || attempts || ' of ' || max_attempts || ')' END,
      ended_at = CASE WHEN attempts < max_attempts THEN NULL ELSE {now} END,
      due_at = {now} + $2,
      attempts = CASE WHEN attempts < max_attempts THEN attempts + 1 ELSE attempts END,
      epoch = 1 + (SELECT CASE WHEN epoch_floor > queue.epoch THEN epoch_floor ELSE queue.epoch END FROM ralph_store)
    WHERE run = (
      SELECT q.run FROM queue AS q
      WHERE q.state IN ('queued', 'running') AND q.due_at <= {now}
        AND NOT EXISTS (
          SELECT 1 FROM {labels} WHERE NOT EXISTS (
            SELECT 1 FROM {offers}
            WHERE offer.value IN (label.value, substr(label.value, 1, {position}(label.value, '=')) || '*')))
        AND ($4 IS NULL OR $4 > (SELECT COALESCE(SUM(nanos), 0) FROM spending WHERE day = {today}))
        AND ($5 IS NULL OR $5 > (
          SELECT COALESCE(SUM(s.nanos), 0) FROM spending AS s WHERE s.day = {today} AND s.project = q.project))
      ORDER BY q.priority DESC, q.queued_at, q.run
      LIMIT 1 {skip_locked})
    RETURNING run, state, epoch, attempts, max_attempts, failed_starts, project, request";

const REQUEUE: &str = "
    UPDATE queue SET state = 'queued', queued_at = {now}, due_at = 0, attempts = 0, failed_starts = 0, owner = NULL,
      outcome = NULL, reason = NULL, ended_at = NULL
    WHERE run = $1 AND state IN ('finished', 'needs_person')";

/// What was asked of a run that ended is not asked of the one that begins.
const FORGET_MOVED: &str = "DELETE FROM interventions WHERE run = $1 AND moved_epoch IS NOT NULL";

const SPENT_TODAY: &str = "
    SELECT project, CAST(SUM(nanos) AS BIGINT) FROM spending WHERE day = {today} GROUP BY project ORDER BY project";

const ROWS: &str = "
    SELECT run, state, priority, attempts, epoch, owner, outcome, reason, request FROM queue ORDER BY priority DESC, queued_at, run";

const ROW: &str =
    "SELECT run, state, priority, attempts, epoch, owner, outcome, reason, request FROM queue WHERE run = $1";

impl Store {
    /// Queues a run and wakes a worker. Returns whether it was added: a run that is in the queue already stays as it is, so
    /// a submission whose result was lost can be sent again.
    pub async fn submit(&self, submission: &Submission) -> Result<bool, StoreError> {
        let sql = self.sql(SUBMIT);
        let due_at = submission.not_before.map_or(0, Timestamp::as_millisecond);
        let labels = to_json(&submission.labels);
        let added = on_pool!(self, pool => {
            let query = sqlx::query(&sql)
                .bind(submission.run.as_str())
                .bind(&submission.project)
                .bind(&submission.request)
                .bind(&labels)
                .bind(submission.priority)
                .bind(due_at)
                .bind(i64::from(submission.max_attempts));
            query.execute(pool).await.map(|done| done.rows_affected())
        });
        let added = added.map_err(StoreError::statement("queue a run"))? > 0;
        self.wake_workers().await;
        Ok(added)
    }

    /// Claims the first run that this worker may drive. `None` if no run fits, or a limit is reached.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<Option<QueueClaim>, StoreError> {
        type Claimed = (String, String, i64, i64, i64, i64, String, String);
        let sql = self.sql(CLAIM);
        let offers = to_json(&request.offers);
        let [per_day, per_project] =
            [request.limits.per_day, request.limits.per_project].map(|limit| limit.map(nanos));
        loop {
            let claimed: Option<Claimed> = on_pool!(self, pool => {
                let query = sqlx::query_as(&sql)
                    .bind(&request.worker)
                    .bind(milliseconds(request.lease))
                    .bind(&offers)
                    .bind(per_day)
                    .bind(per_project);
                query.fetch_optional(pool).await
            })
            .map_err(StoreError::statement("claim a run"))?;
            let Some((run, state, epoch, attempt, max_attempts, failed_starts, project, request)) = claimed
            else {
                return Ok(None);
            };
            // Otherwise it went to a person.
            if state.parse::<QueueState>()? == QueueState::Running {
                return Ok(Some(QueueClaim {
                    run: RunId::parse(&run).map_err(StoreError::row)?,
                    epoch: unsigned(epoch)?,
                    attempt: unsigned(attempt)?,
                    max_attempts: unsigned(max_attempts)?,
                    failed_starts: unsigned(failed_starts)?,
                    project,
                    request,
                }));
            }
        }
    }

    /// Queues a run again that ended or waits for a person. Returns whether there was one.
    pub async fn requeue(&self, run: &RunId) -> Result<bool, StoreError> {
        let sql = self.sql(REQUEUE);
        let done = in_transaction!(self, tx => {
            let done = sqlx::query(&sql).bind(run.as_str()).execute(&mut *tx).await?;
            if done.rows_affected() > 0 {
                sqlx::query(FORGET_MOVED).bind(run.as_str()).execute(&mut *tx).await?;
            }
            done.rows_affected()
        });
        let changed = done.map_err(StoreError::statement("queue a run again"))? > 0;
        self.wake_workers().await;
        Ok(changed)
    }

    /// What the runs of each project used today (UTC), by the clock of the database.
    pub async fn spent_today(&self) -> Result<Vec<(String, Usd)>, StoreError> {
        let sql = self.sql(SPENT_TODAY);
        let rows: Vec<(String, i64)> = on_pool!(self, pool => sqlx::query_as(&sql).fetch_all(pool).await)
            .map_err(StoreError::statement("read what was spent"))?;
        let rows = rows.into_iter();
        rows.map(|(project, nanos)| Ok((project, Usd::from_nanos(unsigned(nanos)?))))
            .collect()
    }

    /// A run of the queue.
    pub async fn queue_row(&self, run: &RunId) -> Result<Option<QueueRow>, StoreError> {
        let row: Option<StoredRow> = on_pool!(self, pool => {
            sqlx::query_as(ROW).bind(run.as_str()).fetch_optional(pool).await
        })
        .map_err(StoreError::statement("read the queue"))?;
        row.map(QueueRow::try_from).transpose()
    }

    /// The whole queue, in the order of claims.
    pub async fn queue(&self) -> Result<Vec<QueueRow>, StoreError> {
        let rows: Vec<StoredRow> = on_pool!(self, pool => sqlx::query_as(ROWS).fetch_all(pool).await)
            .map_err(StoreError::statement("read the queue"))?;
        rows.into_iter().map(QueueRow::try_from).collect()
    }
}

/// A row as it is stored.
struct StoredRow {
    run: String,
    state: String,
    priority: i64,
    attempts: i64,
    epoch: i64,
    owner: Option<String>,
    outcome: Option<String>,
    reason: Option<String>,
    request: String,
}

impl<'r, R: Row> FromRow<'r, R> for StoredRow
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> sqlx::Result<Self> {
        Ok(Self {
            run: row.try_get("run")?,
            state: row.try_get("state")?,
            priority: row.try_get("priority")?,
            attempts: row.try_get("attempts")?,
            epoch: row.try_get("epoch")?,
            owner: row.try_get("owner")?,
            outcome: row.try_get("outcome")?,
            reason: row.try_get("reason")?,
            request: row.try_get("request")?,
        })
    }
}

impl TryFrom<StoredRow> for QueueRow {
    type Error = StoreError;

    fn try_from(row: StoredRow) -> Result<Self, StoreError> {
        Ok(Self {
            run: RunId::parse(&row.run).map_err(StoreError::row)?,
            state: row.state.parse()?,
            priority: row.priority,
            attempts: unsigned(row.attempts)?,
            epoch: unsigned(row.epoch)?,
            owner: row.owner,
            outcome: row.outcome,
            reason: row.reason,
            request: row.request,
        })
    }
}

/// A number as both engines store it. More than they can store is as much as they can.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned<T: TryFrom<i64>>(number: i64) -> Result<T, StoreError> {
    T::try_from(number).map_err(|_| StoreError::row(format!("{number} is out of range")))
}

pub(super) fn nanos(amount: Usd) -> i64 {
    signed(amount.nanos())
}

pub(super) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
