//! A queue to measure.

use std::path::Path;
use std::time::Duration;

use ralph::id::RunId;
use ralph::secret::Secret;
use ralph::store::{ClaimRequest, Label, SpendingLimits, Store, StoreAddress, Submission};
use ralph::usage::Usd;
use sqlx::{Connection, PgConnection, SqliteConnection};
use support::postgres::PostgresServer;

use super::Fallible;

/// How many runs wait.
pub(crate) const QUEUED: usize = 10_000;

/// Runs that want a label and have different priorities, in the form of the queue's own rows. In one statement: only claims
/// are measured.
const FILL: &str = r#"
    WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 10000)
    INSERT INTO queue (run, project, request, labels, state, priority, queued_at, due_at, attempts, max_attempts, epoch)
    SELECT 'r' || (10000 + number), 'project-' || (number % 20), '{"repository":"https://example.com/project.git"}',
      '["provider=docker"]', 'queued', number % 3, number, 0, 0, 3, 0
    FROM numbers"#;

pub(crate) async fn open(url: &str) -> Fallible<Store> {
    Ok(Store::open(&StoreAddress::parse(&Secret::new(url), Path::new("/"))?).await?)
}

/// The address of a new file.
pub(crate) fn sqlite_url(dir: &Path) -> String {
    format!("sqlite:///{}", dir.join("ralph.db").display())
}

/// The address of a new database.
pub(crate) async fn create_database(server: &PostgresServer, name: &str) -> Fallible<String> {
    let mut connection = PgConnection::connect(&server.url("postgres")).await?;
    sqlx::raw_sql(&format!("CREATE DATABASE {name}"))
        .execute(&mut connection)
        .await?;
    Ok(server.url(name))
}

pub(crate) async fn fill_sqlite(dir: &Path) -> Fallible<()> {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.join("ralph.db"));
    let mut connection = SqliteConnection::connect_with(&options).await?;
    sqlx::raw_sql(FILL).execute(&mut connection).await?;
    Ok(connection.close().await?)
}

pub(crate) async fn fill_postgres(url: &str) -> Fallible<()> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql(FILL).execute(&mut connection).await?;
    sqlx::raw_sql("ANALYZE").execute(&mut connection).await?;
    Ok(connection.close().await?)
}

/// What a worker asks for that offers a provider and has limits, so that every part of the statement counts.
pub(crate) fn request(worker: usize) -> Fallible<ClaimRequest> {
    Ok(ClaimRequest {
        worker: format!("worker {worker}"),
        offers: vec![Label::parse("provider=docker")?, Label::parse("arch=x86_64")?],
        lease: Duration::from_secs(30),
        limits: SpendingLimits {
            per_day: Some(Usd::from_nanos(1_000_000_000_000)),
            per_project: Some(Usd::from_nanos(100_000_000_000)),
        },
    })
}

pub(crate) fn submission(number: usize) -> Fallible<Submission> {
    Ok(Submission {
        run: RunId::parse(&format!("r{number:04}"))?,
        project: "site".into(),
        request: "{}".into(),
        labels: vec![Label::parse("provider=docker")?],
        priority: 0,
        not_before: None,
        max_attempts: 3,
    })
}
