//! The store on both engines: a file of SQLite, and a real Postgres that the tests start.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests look at the host they run on and panic when they fail"
)]

mod api_secrets;
mod claimers;
mod creations;
mod database;
mod formats;
mod leases;
mod limits;
mod lists;
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

/// Each function of the store, by name, is called in this suite, where every test runs on both engines.
#[test]
fn every_statement_runs_on_both_engines() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text_of = |dir: &str| {
        let files = std::fs::read_dir(root.join(dir)).unwrap();
        let files = files
            .map(|file| file.unwrap().path())
            .filter(|path| path.is_file());
        files
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect::<String>()
    };
    let (source, tests) = (text_of("src/store"), text_of("tests/store"));
    let functions = source.split("pub async fn ").skip(1);
    let names = functions.map(|rest| rest.split(['(', '<']).next().unwrap());
    let untested: Vec<&str> = names
        .filter(|name| !tests.contains(&format!(".{name}(")) && !tests.contains(&format!("::{name}(")))
        .collect();
    assert!(untested.is_empty(), "{untested:?}");
}
