//! A repository with a task, a queue, and hosts that work on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ralph::RunId;
use ralph::secret::Secret;
use ralph::store::{QueueRow, Store, StoreAddress};
use serde_json::Value;
use sqlx::{Connection, PgConnection};

use crate::support::postgres::PostgresServer;
use crate::support::ralph::{Ended, Place, finish, script, whole_task};

/// A user's repository and a queue.
pub struct Desk {
    pub place: Place,
    database: String,
    server: Option<Arc<PostgresServer>>,
}

impl Desk {
    /// With a queue in a file, as by default.
    pub fn sqlite() -> Self {
        let place = Place::new();
        Self {
            database: format!("sqlite:///{}", place.home().join("ralph.db").display()),
            place,
            server: None,
        }
    }

    /// With a queue in a database of the shared server.
    pub async fn postgres() -> Result<Self, String> {
        let server = PostgresServer::shared()?;
        Ok(Self::on(server).await)
    }

    /// With a queue in a new database of this server.
    pub async fn on(server: Arc<PostgresServer>) -> Self {
        let name = RunId::random().to_string();
        let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
        let create = format!("CREATE DATABASE {name}");
        sqlx::raw_sql(&create).execute(&mut connection).await.unwrap();
        Self {
            place: Place::new(),
            database: server.url(&name),
            server: Some(server),
        }
    }

    /// The queue.
    pub async fn store(&self) -> Store {
        let address = StoreAddress::parse(&Secret::new(&self.database), Path::new("/")).unwrap();
        Store::open(&address).await.unwrap()
    }

    /// The row of a run.
    pub async fn row(&self, run: &str) -> QueueRow {
        let store = self.store().await;
        let rows = store.queue().await.unwrap();
        store.close().await;
        rows.into_iter().find(|row| row.run.as_str() == run).unwrap()
    }

    /// `ralph` as a process of the user.
    pub fn ralph(&self, args: &[&str]) -> Command {
        let mut command = self.place.ralph(args);
        if self.server.is_some() {
            command.env("RALPH_DB_URL", &self.database);
        }
        command
    }

    /// Runs `ralph` as a process of the user.
    pub fn run(&self, args: &[&str]) -> Ended {
        finish(&mut self.ralph(args))
    }

    /// A file with this script of the model.
    pub fn script_file(&self, script: &Value) -> PathBuf {
        let file = self
            .place
            .path()
            .join(format!("script-{}.json", fastrand::u64(..)));
        std::fs::write(&file, script.to_string()).unwrap();
        file
    }

    /// Submits the task, whose model answers from a script, and returns its run.
    pub fn submit(&self, model: &Value, args: &[&str]) -> String {
        let file = self.script_file(model);
        let all = [&["submit", "--script", file.to_str().unwrap()], args].concat();
        let ended = self.run(&all);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout.trim().to_owned()
    }

    /// Submits a task that its first iteration finishes.
    pub fn submit_short(&self, args: &[&str]) -> String {
        self.submit(&script([whole_task()]), args)
    }
}

/// This host, as its label.
pub fn host_label() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    format!("host={}", name.trim())
}
