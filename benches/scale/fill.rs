//! Stores of both engines with many rows, in the form of the store's own. Filled with few statements: filling is not measured.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use ralph::store::Store;
use sqlx::{Connection, PgConnection, SqliteConnection};
use support::postgres::PostgresServer;
use tempfile::TempDir;

use super::Fallible;
use super::queue;

/// The numbers from 1 to `{count}`.
const NUMBERS: &str = "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {count})";

/// What a run needs of a worker, and the project that it counts against.
const QUEUE: &str = "
    INSERT INTO queue (run, project, request, labels, state, priority, queued_at, due_at, attempts, max_attempts, epoch, owner, ended_at)
    SELECT '{prefix}' || (1000000 + number), 'project-' || (number % 20), '{\"repository\":\"https://example.com/project.git\"}',
      '[\"provider=docker\"]', '{state}', 0, {queued_at} + number, {due_at}, {attempts}, 3, {attempts}, NULL, {ended_at}
    FROM numbers";

const SPENDING: &str = "
    INSERT INTO spending (run, day, project, nanos)
    SELECT '{prefix}' || (1000000 + number), {now} / 86400000, 'project-' || (number % 20), 1000000 FROM numbers";

const INDEX: &str = "
    INSERT INTO runs (id, host, created_at, updated_at, state, title, repository, branch, iterations, checkboxes, ticked, tokens,
      cost_nanos, unpriced_calls, worked_ms)
    SELECT '{prefix}' || (1000000 + number), 'host-' || (number % 20), {now} - number, {now} - number, 'done', 'Say hello ' || number,
      '/srv/project.git', 'ralph/say-hello-' || number, 10, 2, 2, 100000, 1000000, 0, 600000
    FROM numbers";

const EVENTS: &str = "
    INSERT INTO events (run, epoch, number, event)
    SELECT '{prefix}1000001', 1, number, '{\"at\":\"2026-01-01T00:00:00Z\",\"event\":\"output\",\"text\":\"one line of output\"}' FROM numbers";

/// The prefixes of run ids.
pub(crate) const QUEUED: &str = "rq";
pub(crate) const RUNNING: &str = "rw";
const ENDED: &str = "re";

#[derive(Clone, Copy)]
pub(crate) enum Engine<'a> {
    Sqlite,
    Postgres(&'a PostgresServer),
}

impl Engine<'_> {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres(_) => "postgres",
        }
    }
}

/// A new store, and where it is.
pub(crate) struct FilledStore {
    pub(crate) store: Store,
    url: String,
    dir: TempDir,
}

impl FilledStore {
    pub(crate) async fn new(engine: Engine<'_>) -> Fallible<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let dir = tempfile::tempdir()?;
        let url = match engine {
            Engine::Sqlite => queue::sqlite_url(dir.path()),
            Engine::Postgres(server) => {
                let name = format!("scale{}", NUMBER.fetch_add(1, Ordering::Relaxed));
                queue::create_database(server, &name).await?
            }
        };
        Ok(Self {
            store: queue::open(&url).await?,
            url,
            dir,
        })
    }

    /// The connections of another process.
    pub(crate) async fn another_process(&self) -> Fallible<Store> {
        queue::open(&self.url).await
    }

    /// Runs that wait.
    pub(crate) async fn queued(&self, count: u64) -> Fallible<()> {
        let values = [("queued_at", "1000000000"), ("due_at", "0"), ("attempts", "0")];
        self.queue(count, (QUEUED, "queued"), values).await
    }

    /// Runs that workers claimed. They came before those that wait.
    pub(crate) async fn running(&self, count: u64) -> Fallible<()> {
        let due_at = "{now} + 3600000";
        let values = [("queued_at", "0"), ("due_at", due_at), ("attempts", "1")];
        self.queue(count, (RUNNING, "running"), values).await
    }

    /// Runs of workers that died: their leases have ended.
    pub(crate) async fn expired(&self, count: u64) -> Fallible<()> {
        let due_at = "{now} - 1";
        let values = [("queued_at", "0"), ("due_at", due_at), ("attempts", "1")];
        self.queue(count, (RUNNING, "running"), values).await
    }

    /// Runs that ended today and used something.
    pub(crate) async fn ended(&self, count: u64) -> Fallible<()> {
        let values = [("queued_at", "0"), ("due_at", "0"), ("attempts", "1")];
        self.queue(count, (ENDED, "finished"), values).await?;
        self.fill(SPENDING, count, ENDED).await
    }

    /// Rows of the index of runs.
    pub(crate) async fn indexed(&self, count: u64) -> Fallible<()> {
        self.fill(INDEX, count, QUEUED).await
    }

    /// Events of the first running run.
    pub(crate) async fn events(&self, count: u64) -> Fallible<()> {
        self.fill(EVENTS, count, RUNNING).await
    }

    async fn queue(
        &self,
        count: u64,
        (prefix, state): (&str, &str),
        values: [(&str, &str); 3],
    ) -> Fallible<()> {
        let ended_at = if state == "finished" { "{now}" } else { "NULL" };
        let mut sql = QUEUE.replace("{state}", state).replace("{ended_at}", ended_at);
        for (name, value) in values {
            sql = sql.replace(&format!("{{{name}}}"), value);
        }
        self.fill(&sql, count, prefix).await
    }

    async fn fill(&self, sql: &str, count: u64, prefix: &str) -> Fallible<()> {
        let now = jiff::Timestamp::now().as_millisecond().to_string();
        let sql = format!("{NUMBERS} {sql}")
            .replace("{count}", &count.to_string())
            .replace("{prefix}", prefix)
            .replace("{now}", &now);
        if self.store.is_shared() {
            let mut connection = PgConnection::connect(&self.url).await?;
            sqlx::raw_sql(&sql).execute(&mut connection).await?;
            sqlx::raw_sql("ANALYZE").execute(&mut connection).await?;
            return Ok(connection.close().await?);
        }
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(self.file());
        let mut connection = SqliteConnection::connect_with(&options).await?;
        sqlx::raw_sql(&sql).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }

    /// The size of the database, in bytes.
    pub(crate) async fn size(&self) -> Fallible<u64> {
        if self.store.is_shared() {
            return self.number("SELECT pg_database_size(current_database())").await;
        }
        let names = ["ralph.db", "ralph.db-wal"].map(|name| self.dir.path().join(name));
        let sizes = names
            .iter()
            .map(|path| std::fs::metadata(path).map_or(0, |file| file.len()));
        Ok(sizes.sum())
    }

    /// How many connections the store has, without the one that asks.
    pub(crate) async fn connections(&self) -> Fallible<u64> {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.number(sql).await
    }

    async fn number(&self, sql: &str) -> Fallible<u64> {
        let mut connection = PgConnection::connect(&self.url).await?;
        let number: i64 = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(u64::try_from(number)?)
    }

    fn file(&self) -> std::path::PathBuf {
        Path::new(self.dir.path()).join("ralph.db")
    }
}
