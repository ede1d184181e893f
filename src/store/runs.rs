//! The index of runs.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{ColumnIndex, Decode, FromRow, QueryBuilder, Row, Type};

use super::lease::storable;
use super::queue::{milliseconds, nanos, signed, unsigned};
use super::{QueueState, Store, StoreError, in_transaction, on_pool};
use crate::id::RunId;
use crate::usage::Usd;

/// A run in the index. Times are exact to a millisecond.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedRun {
    /// The run.
    pub id: RunId,
    /// The host that worked on it last.
    pub host: String,
    /// When it was created.
    pub created: Timestamp,
    /// When its journal got its newest line.
    pub updated: Timestamp,
    /// `running`, `interrupted`, or how it ended.
    pub state: String,
    /// Why it ended.
    pub reason: Option<String>,
    /// The title of its task.
    pub title: String,
    /// The git directory of the user's repository.
    pub repository: String,
    /// The branch that gets the work.
    pub branch: String,
    /// The directory whose configuration it was created with.
    pub project: Option<String>,
    /// Recorded iterations.
    pub iterations: u32,
    /// Checkboxes of the task.
    pub checkboxes: u32,
    /// Those that are ticked.
    pub ticked: u32,
    /// Input and output tokens.
    pub tokens: u64,
    /// The cost of all calls whose price is known.
    pub cost: Usd,
    /// Calls whose price is unknown.
    pub unpriced_calls: u64,
    /// Time at work.
    pub worked: Duration,
    /// A URL or a file.
    pub pull_request: Option<String>,
}

/// A run of a list: its row in the index, and where it is in the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedRun {
    /// Its row in the index.
    pub run: IndexedRun,
    /// Where it is in the queue; `None` if it was never submitted, or ended long ago.
    pub queue: Option<QueueState>,
    /// The worker that has claimed it.
    pub worker: Option<String>,
}

/// Which runs a list has. Nothing leaves all of them.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Those in this state.
    pub state: Option<String>,
    /// Those that are there in the queue.
    pub queue: Option<QueueState>,
    /// Those of this project directory.
    pub project: Option<String>,
    /// Those with this text in their title, id or branch, in any case.
    pub text: Option<String>,
}

/// The position of a run in a list: the time of its creation in milliseconds, and its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunCursor {
    /// When it was created.
    pub created_ms: i64,
    /// Its id.
    pub id: String,
}

/// A host that has an older journal of the run does not overwrite the newer row of another one.
const UPSERT: &str = "
    INSERT INTO runs (id, host, created_at, updated_at, state, reason, title, repository, branch, project, iterations,
      checkboxes, ticked, tokens, cost_nanos, unpriced_calls, worked_ms, pull_request)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
    ON CONFLICT (id) DO UPDATE SET host = excluded.host, created_at = excluded.created_at,
      updated_at = excluded.updated_at, state = excluded.state, reason = excluded.reason, title = excluded.title,
      repository = excluded.repository, branch = excluded.branch, project = excluded.project,
      iterations = excluded.iterations, checkboxes = excluded.checkboxes, ticked = excluded.ticked,
      tokens = excluded.tokens, cost_nanos = excluded.cost_nanos, unpriced_calls = excluded.unpriced_calls,
      worked_ms = excluded.worked_ms, pull_request = excluded.pull_request
    WHERE excluded.updated_at >= runs.updated_at OR excluded.host = runs.host";

const REMOVE_OF_HOST: &str = "DELETE FROM runs WHERE host = $1";

const REMOVE: &str = "DELETE FROM runs WHERE id = $1 AND host = $2";

const LIST: &str = "SELECT * FROM runs ORDER BY created_at, id";

const OF_HOST: &str = "SELECT id, repository FROM runs WHERE host = $1";

const LISTED: &str = "
    SELECT runs.*, queue.state AS queue_state, queue.owner AS worker
    FROM runs LEFT JOIN queue ON queue.run = runs.id";

macro_rules! upsert {
    ($run:expr, $executor:expr) => {
        sqlx::query(UPSERT)
            .bind($run.id.as_str())
            .bind(&$run.host)
            .bind($run.created.as_millisecond())
            .bind($run.updated.as_millisecond())
            .bind(&$run.state)
            .bind($run.reason.as_deref().map(storable))
            .bind(storable(&$run.title))
            .bind(&$run.repository)
            .bind(&$run.branch)
            .bind(&$run.project)
            .bind(i64::from($run.iterations))
            .bind(i64::from($run.checkboxes))
            .bind(i64::from($run.ticked))
            .bind(signed($run.tokens))
            .bind(nanos($run.cost))
            .bind(signed($run.unpriced_calls))
            .bind(milliseconds($run.worked))
            .bind($run.pull_request.as_deref().map(storable))
            .execute($executor)
    };
}

impl Store {
    /// Adds runs to the index, or updates them, at once.
    pub async fn index_runs(&self, runs: &[IndexedRun]) -> Result<(), StoreError> {
        let done = in_transaction!(self, tx => {
            for run in runs {
                upsert!(run, &mut *tx).await?;
            }
        });
        done.map_err(StoreError::statement("write the index of runs"))
    }

    /// Removes a run of this host from the index. The row stays if another host worked on the run last.
    pub async fn unindex_run(&self, run: &RunId, host: &str) -> Result<(), StoreError> {
        let done = on_pool!(self, pool => {
            sqlx::query(REMOVE).bind(run.as_str()).bind(host).execute(pool).await.map(drop)
        });
        done.map_err(StoreError::statement("remove a run from the index"))
    }

    /// The runs that this host worked on last, each with its repository.
    pub async fn runs_of_host(&self, host: &str) -> Result<Vec<(RunId, String)>, StoreError> {
        let rows: Vec<(String, String)> =
            on_pool!(self, pool => sqlx::query_as(OF_HOST).bind(host).fetch_all(pool).await)
                .map_err(StoreError::statement("list the runs"))?;
        let rows = rows.into_iter();
        rows.map(|(id, repository)| Ok((RunId::parse(&id).map_err(StoreError::row)?, repository)))
            .collect()
    }

    /// At most `limit` runs after a position, newest first.
    pub async fn list_runs(
        &self,
        filter: &RunFilter,
        after: Option<&RunCursor>,
        limit: u32,
    ) -> Result<Vec<ListedRun>, StoreError> {
        let text = filter.text.as_deref().map(|text| format!("%{}%", escaped(text)));
        let (created_ms, id) = after.map_or((i64::MAX, ""), |after| (after.created_ms, after.id.as_str()));
        let rows: Vec<StoredListedRun> = on_pool!(self, pool => {
            // Only the conditions that are asked for: one that may be absent keeps both engines from using an index.
            let mut query = QueryBuilder::new(LISTED);
            // The first condition alone lets an index find the page.
            query.push(" WHERE runs.created_at <= ").push_bind(created_ms);
            query.push(" AND (runs.created_at < ").push_bind(created_ms);
            query.push(" OR runs.id < ").push_bind(id).push(")");
            if let Some(state) = &filter.state {
                query.push(" AND runs.state = ").push_bind(storable(state));
            }
            if let Some(state) = filter.queue {
                query.push(" AND queue.state = ").push_bind(state.as_str());
            }
            if let Some(project) = &filter.project {
                query.push(" AND runs.project = ").push_bind(storable(project));
            }
            if let Some(text) = &text {
                query.push(" AND LOWER(runs.title || ' ' || runs.id || ' ' || runs.branch) LIKE LOWER(");
                query.push_bind(storable(text)).push(") ESCAPE '!'");
            }
            query.push(" ORDER BY runs.created_at DESC, runs.id DESC LIMIT ").push_bind(i64::from(limit));
            query.build_query_as().fetch_all(pool).await
        })
        .map_err(StoreError::statement("list the runs"))?;
        rows.into_iter().map(ListedRun::try_from).collect()
    }

    /// One run, as lists have it.
    pub async fn listed_run(&self, run: &RunId) -> Result<Option<ListedRun>, StoreError> {
        let sql = format!("{LISTED} WHERE runs.id = $1");
        let row: Option<StoredListedRun> =
            on_pool!(self, pool => sqlx::query_as(&sql).bind(run.as_str()).fetch_optional(pool).await)
                .map_err(StoreError::statement("read the index of runs"))?;
        row.map(ListedRun::try_from).transpose()
    }

    /// Replaces what the index has of this host by these runs, at once. Runs that only other hosts know stay.
    pub async fn replace_runs(&self, host: &str, runs: &[IndexedRun]) -> Result<(), StoreError> {
        let done = in_transaction!(self, tx => {
            sqlx::query(REMOVE_OF_HOST).bind(host).execute(&mut *tx).await?;
            for run in runs {
                upsert!(run, &mut *tx).await?;
            }
        });
        done.map_err(StoreError::statement("write the index of runs"))
    }

    /// All runs, oldest first.
    pub async fn runs(&self) -> Result<Vec<IndexedRun>, StoreError> {
        let rows: Vec<StoredRun> = on_pool!(self, pool => sqlx::query_as(LIST).fetch_all(pool).await)
            .map_err(StoreError::statement("list the runs"))?;
        rows.into_iter().map(IndexedRun::try_from).collect()
    }
}

/// The text without the signs that `LIKE` reads as wildcards.
fn escaped(text: &str) -> String {
    text.replace('!', "!!").replace('%', "!%").replace('_', "!_")
}

struct StoredListedRun {
    run: StoredRun,
    queue: Option<String>,
    worker: Option<String>,
}

impl<'r, R: Row> FromRow<'r, R> for StoredListedRun
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> sqlx::Result<Self> {
        Ok(Self {
            run: StoredRun::from_row(row)?,
            queue: row.try_get("queue_state")?,
            worker: row.try_get("worker")?,
        })
    }
}

impl TryFrom<StoredListedRun> for ListedRun {
    type Error = StoreError;

    fn try_from(row: StoredListedRun) -> Result<Self, StoreError> {
        Ok(Self {
            run: row.run.try_into()?,
            queue: row.queue.map(|state| state.parse()).transpose()?,
            worker: row.worker,
        })
    }
}

/// The numbers and texts of a row, as they are stored.
struct StoredRun {
    texts: [String; 6],
    optional: [Option<String>; 3],
    numbers: [i64; 9],
}

const TEXTS: [&str; 6] = ["id", "host", "state", "title", "repository", "branch"];
const OPTIONAL: [&str; 3] = ["reason", "project", "pull_request"];
const NUMBERS: [&str; 9] = [
    "created_at",
    "updated_at",
    "iterations",
    "checkboxes",
    "ticked",
    "tokens",
    "cost_nanos",
    "unpriced_calls",
    "worked_ms",
];

impl<'r, R: Row> FromRow<'r, R> for StoredRun
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> sqlx::Result<Self> {
        let mut stored = Self {
            texts: Default::default(),
            optional: Default::default(),
            numbers: Default::default(),
        };
        for (text, name) in stored.texts.iter_mut().zip(TEXTS) {
            *text = row.try_get(name)?;
        }
        for (text, name) in stored.optional.iter_mut().zip(OPTIONAL) {
            *text = row.try_get(name)?;
        }
        for (number, name) in stored.numbers.iter_mut().zip(NUMBERS) {
            *number = row.try_get(name)?;
        }
        Ok(stored)
    }
}

impl TryFrom<StoredRun> for IndexedRun {
    type Error = StoreError;

    fn try_from(row: StoredRun) -> Result<Self, StoreError> {
        let time = |ms| Timestamp::from_millisecond(ms).map_err(StoreError::row);
        let [id, host, state, title, repository, branch] = row.texts;
        let [reason, project, pull_request] = row.optional;
        let [
            created,
            updated,
            iterations,
            checkboxes,
            ticked,
            tokens,
            cost,
            unpriced,
            worked,
        ] = row.numbers;
        Ok(Self {
            id: RunId::parse(&id).map_err(StoreError::row)?,
            host,
            created: time(created)?,
            updated: time(updated)?,
            state,
            reason,
            title,
            repository,
            branch,
            project,
            iterations: unsigned(iterations)?,
            checkboxes: unsigned(checkboxes)?,
            ticked: unsigned(ticked)?,
            tokens: unsigned(tokens)?,
            cost: Usd::from_nanos(unsigned(cost)?),
            unpriced_calls: unsigned(unpriced)?,
            worked: Duration::from_millis(unsigned(worked)?),
            pull_request,
        })
    }
}
