//! The connections of a store.

use std::time::Duration;

use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{Connection, Executor};
use tokio::time::timeout;

use super::address::{StoreAddress, StorePlace, sqlite_options};
use super::{Dialect, StoreError};

/// How long to wait for a connection, also while a server restarts.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most connections of one process.
const MOST_CONNECTIONS: u32 = 8;

/// By default Postgres makes a new plan for each of the first five executions of a statement, on each connection. A worker claims seldom, so
/// it would never get past them, and to plan a claim takes longer than to execute it.
const PLAN_ONCE: &str = "SET plan_cache_mode = force_generic_plan";

/// The index of runs and the queue, in a file of SQLite or a database of Postgres. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) pool: StorePool,
}

#[derive(Clone, Debug)]
pub(super) enum StorePool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// Runs the same code on the pool of either engine.
macro_rules! on_pool {
    ($store:expr, $pool:ident => $body:expr) => {
        match &$store.pool {
            $crate::store::pool::StorePool::Sqlite($pool) => $body,
            $crate::store::pool::StorePool::Postgres($pool) => $body,
        }
    };
}
pub(super) use on_pool;

/// Runs the same code in a transaction of either engine. One of SQLite starts as a writer: it could not become one later,
/// when another writer was faster. The result is that of `sqlx`.
macro_rules! in_transaction {
    ($store:expr, $tx:ident => $body:expr) => {
        match &$store.pool {
            $crate::store::pool::StorePool::Sqlite(pool) => {
                async {
                    let mut $tx = pool.begin_with("BEGIN IMMEDIATE").await?;
                    let value = $body;
                    $tx.commit().await?;
                    Ok::<_, sqlx::Error>(value)
                }
                .await
            }
            $crate::store::pool::StorePool::Postgres(pool) => {
                async {
                    let mut $tx = pool.begin().await?;
                    let value = $body;
                    $tx.commit().await?;
                    Ok::<_, sqlx::Error>(value)
                }
                .await
            }
        }
    };
}
pub(super) use in_transaction;

impl Store {
    /// Opens a store. A missing one is created, an older format is migrated, a newer one refused.
    pub async fn open(address: &StoreAddress) -> Result<Self, StoreError> {
        let open_error = |source| StoreError::Open {
            store: address.to_string(),
            source,
        };
        let pool = match &address.0 {
            StorePlace::File(path) => {
                let parent = path.parent().unwrap_or(path);
                std::fs::create_dir_all(parent).map_err(|source| StoreError::Directory {
                    path: parent.to_owned(),
                    source,
                })?;
                let options = SqlitePoolOptions::new().max_connections(MOST_CONNECTIONS);
                let pool = options.acquire_timeout(ACQUIRE_TIMEOUT);
                StorePool::Sqlite(
                    pool.connect_with(sqlite_options(path))
                        .await
                        .map_err(open_error)?,
                )
            }
            StorePlace::Postgres(options) => {
                let pool = PgPoolOptions::new().max_connections(MOST_CONNECTIONS);
                let pool = pool.acquire_timeout(ACQUIRE_TIMEOUT);
                let pool = pool.after_connect(|connection, _| {
                    Box::pin(async move { connection.execute(PLAN_ONCE).await.map(drop) })
                });
                // The pool would retry a refused connection, which helps only while a server restarts.
                let first = timeout(ACQUIRE_TIMEOUT, PgConnection::connect_with(options)).await;
                let first = first
                    .unwrap_or(Err(sqlx::Error::PoolTimedOut))
                    .map_err(open_error)?;
                first.close().await.map_err(open_error)?;
                StorePool::Postgres(pool.connect_lazy_with((**options).clone()))
            }
        };
        let store = Self { pool };
        store.migrate(address).await?;
        Ok(store)
    }

    /// Whether processes on other hosts can use it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.dialect() == Dialect::Postgres
    }

    /// Closes all connections. A file of SQLite is whole without its write-ahead log then.
    pub async fn close(self) {
        on_pool!(self, pool => pool.close().await);
    }

    pub(super) fn dialect(&self) -> Dialect {
        match &self.pool {
            StorePool::Sqlite(_) => Dialect::Sqlite,
            StorePool::Postgres(_) => Dialect::Postgres,
        }
    }

    /// The statement in the SQL of this store.
    pub(super) fn sql(&self, statement: &str) -> String {
        self.dialect().sql(statement)
    }
}
