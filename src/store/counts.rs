//! How many runs there are, by state.

use super::queue::unsigned;
use super::{Store, StoreError, on_pool};

const IN_QUEUE: &str = "SELECT state, COUNT(*) FROM queue GROUP BY state ORDER BY state";
const IN_INDEX: &str = "SELECT state, COUNT(*) FROM runs GROUP BY state ORDER BY state";

impl Store {
    /// The runs of the queue by their state.
    pub async fn queue_counts(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.counts(IN_QUEUE, "count the queue").await
    }

    /// The runs of the index by their state.
    pub async fn run_counts(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.counts(IN_INDEX, "count the runs").await
    }

    async fn counts(&self, sql: &str, action: &'static str) -> Result<Vec<(String, u64)>, StoreError> {
        let rows: Vec<(String, i64)> = on_pool!(self, pool => sqlx::query_as(sql).fetch_all(pool).await)
            .map_err(StoreError::statement(action))?;
        let rows = rows.into_iter();
        rows.map(|(state, count)| Ok((state, unsigned(count)?))).collect()
    }
}
