//! The format of the database. Each migration leads to the next format.

use sqlx::Executor;

use super::{Dialect, Store, StoreAddress, StoreError, in_transaction};

/// The newest format.
#[expect(clippy::cast_possible_wrap, reason = "there are few")]
pub const STORE_FORMAT: i64 = MIGRATIONS.len() as i64;

/// The statements that lead from each format to the next one. Those that were released never change.
const MIGRATIONS: [&str; 10] = [
    include_str!("migrations/1_runs.sql"),
    include_str!("migrations/2_queue.sql"),
    include_str!("migrations/3_api.sql"),
    include_str!("migrations/4_steering.sql"),
    include_str!("migrations/5_mirror.sql"),
    include_str!("migrations/6_creations.sql"),
    include_str!("migrations/7_starts.sql"),
    include_str!("migrations/8_creation_owners.sql"),
    include_str!("migrations/9_shares.sql"),
    include_str!("migrations/10_runs_by_state.sql"),
];

/// One row: the format, and a number that every new epoch is above.
const FORMAT_TABLE: &str = "
    CREATE TABLE IF NOT EXISTS ralph_store (
      id BIGINT PRIMARY KEY CHECK (id = 1),
      format BIGINT NOT NULL,
      epoch_floor BIGINT NOT NULL
    );
    INSERT INTO ralph_store (id, format, epoch_floor) VALUES (1, 0, 0) ON CONFLICT (id) DO NOTHING;
";

/// Processes that open a new database of Postgres at once wait for each other. The number has no other meaning.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7210431870261)";

impl Store {
    pub(super) async fn migrate(&self, address: &StoreAddress) -> Result<(), StoreError> {
        let is_postgres = self.dialect() == Dialect::Postgres;
        let found = in_transaction!(self, tx => {
            if is_postgres {
                tx.execute(LOCK).await?;
            }
            tx.execute(FORMAT_TABLE).await?;
            let format: i64 = sqlx::query_scalar("SELECT format FROM ralph_store").fetch_one(&mut *tx).await?;
            let done = usize::try_from(format).unwrap_or(MIGRATIONS.len());
            for migration in MIGRATIONS.iter().skip(done) {
                tx.execute(*migration).await?;
            }
            if format < STORE_FORMAT {
                let update = sqlx::query("UPDATE ralph_store SET format = $1").bind(STORE_FORMAT);
                update.execute(&mut *tx).await?;
            }
            format
        });
        let found = found.map_err(StoreError::statement("migrate the tables"))?;
        if found > STORE_FORMAT {
            return Err(StoreError::NewerFormat {
                store: address.to_string(),
                found,
                known: STORE_FORMAT,
            });
        }
        Ok(())
    }
}
