//! A database of its own for each test.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ralph::RunId;
use ralph::secret::Secret;
use ralph::store::{
    ClaimRequest, Label, QueueClaim, QueueRow, SpendingLimits, Store, StoreAddress, StoreError, Submission,
};
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::support::postgres::PostgresServer;

/// The lease of all claims.
pub const LEASE: Duration = Duration::from_secs(30);

/// An empty database.
pub struct Database {
    url: String,
    is_postgres: bool,
    _dir: Option<tempfile::TempDir>,
    _server: Option<Arc<PostgresServer>>,
}

impl Database {
    /// A file that does not exist yet.
    pub fn sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            url: format!("sqlite:///{}", dir.path().join("data/ralph.db").display()),
            is_postgres: false,
            _dir: Some(dir),
            _server: None,
        }
    }

    /// A new database of the shared server, or why there is none.
    pub async fn postgres() -> Result<Self, String> {
        let server = PostgresServer::shared()?;
        Ok(Self {
            url: Self::create(&server).await,
            is_postgres: true,
            _dir: None,
            _server: Some(server),
        })
    }

    /// The address of a new database of this server.
    pub async fn create(server: &PostgresServer) -> String {
        let name = RunId::random().to_string();
        let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
        let create = format!("CREATE DATABASE {name}");
        sqlx::raw_sql(&create).execute(&mut connection).await.unwrap();
        server.url(&name)
    }

    pub async fn try_open(&self) -> Result<Store, StoreError> {
        Store::open(&address(&self.url)).await
    }

    pub async fn open(&self) -> Store {
        self.try_open().await.unwrap()
    }

    /// Runs SQL beside the store.
    pub async fn execute(&self, sql: &str) {
        if self.is_postgres {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        } else {
            // sqlx takes two slashes for what is three in the addresses of ralph.
            let path = self.url.replace("sqlite:///", "");
            let options = sqlx::sqlite::SqliteConnectOptions::new()
                .filename(path)
                .create_if_missing(true);
            let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
            sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
    }

    /// Lets the clock of the database jump: every stored time is that much further away.
    pub async fn jump(&self, seconds: i64) {
        let ms = seconds * 1000;
        self.execute(&format!(
            "UPDATE queue SET queued_at = queued_at - {ms}, due_at = due_at - {ms}, ended_at = ended_at - {ms}"
        ))
        .await;
    }

    /// Its address, as `RALPH_DB_URL` has it.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn is_postgres(&self) -> bool {
        self.is_postgres
    }

    /// Creates the directory of a file, so that a fixture can be written to it.
    pub fn prepare(&self) {
        if !self.is_postgres {
            let path = self.url.replace("sqlite:///", "");
            std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        }
    }
}

pub fn address(url: &str) -> StoreAddress {
    StoreAddress::parse(&Secret::new(url), Path::new("/")).unwrap()
}

pub fn run(number: usize) -> RunId {
    RunId::parse(&format!("r{number:05}")).unwrap()
}

pub fn submission(number: usize) -> Submission {
    Submission {
        run: run(number),
        project: "site".into(),
        request: format!(r#"{{"number":{number}}}"#),
        labels: vec![],
        priority: 0,
        not_before: None,
        max_attempts: 3,
    }
}

pub fn labels(texts: &[&str]) -> Vec<Label> {
    texts.iter().map(|text| Label::parse(text).unwrap()).collect()
}

pub fn request(worker: &str) -> ClaimRequest {
    ClaimRequest {
        worker: worker.to_owned(),
        offers: vec![],
        lease: LEASE,
        limits: SpendingLimits::default(),
    }
}

pub async fn claim(store: &Store, worker: &str) -> Option<QueueClaim> {
    store.claim(&request(worker)).await.unwrap()
}

/// The row of a run.
pub async fn row(store: &Store, number: usize) -> QueueRow {
    let rows = store.queue().await.unwrap();
    rows.into_iter().find(|row| row.run == run(number)).unwrap()
}
