//! The store on both engines: a file of SQLite, and a real Postgres that the tests start.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests look at the machine they run on and stop where they stand"
)]

mod api_secrets;
mod claimers;
mod creations;
mod database;
mod formats;
mod leases;
mod limits;
mod model;
mod queue;
mod rebuild;
mod restart;
mod runs;
mod steering;

use ::support::{self, need};

/// Makes a test for each engine of each function, which gets an empty database.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            use crate::database::Database;

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(Database::sqlite()).await;
            })+
        }

        mod postgres {
            use crate::database::Database;

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let database = crate::need!(Database::postgres().await);
                super::$name(database).await;
            })+
        }
    };
}
use on_both;
