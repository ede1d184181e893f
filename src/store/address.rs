//! The address of a store: a file of SQLite, or a database of Postgres.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::StoreError;
use crate::secret::Secret;

/// How long a statement waits for another writer of the same file.
const BUSY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Where a store is. Displayed without its password.
#[derive(Clone)]
pub struct StoreAddress(pub(super) StorePlace);

#[derive(Clone)]
pub(super) enum StorePlace {
    File(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

impl StoreAddress {
    /// The store in this file of SQLite, which is created when it is missing.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(StorePlace::File(path.into()))
    }

    /// Parses an address such as `sqlite:///ralph.db`, `sqlite:////var/lib/ralph.db` or `postgres://me@host/ralph`. Three
    /// slashes begin a path relative to `dir`, four an absolute one.
    pub fn parse(url: &Secret, dir: &Path) -> Result<Self, StoreError> {
        let url = url.expose();
        let refuse = |problem: &str| StoreError::Address {
            problem: problem.to_owned(),
        };
        if let Some(path) = url.strip_prefix("sqlite:") {
            let path = path
                .strip_prefix("///")
                .ok_or_else(|| refuse("`sqlite:` is followed by three slashes and a path"))?;
            if path.is_empty() || path.starts_with(":memory:") {
                return Err(refuse(
                    "a store in memory would be lost with the process; name a file",
                ));
            }
            return Ok(Self::file(dir.join(path)));
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            // The cause could quote a part of the address.
            let options = PgConnectOptions::from_str(url).map_err(|_| refuse("it is not a valid URL"))?;
            let options = options.application_name("ralph").disable_statement_logging();
            return Ok(Self(StorePlace::Postgres(Box::new(options))));
        }
        Err(refuse("it begins with neither `sqlite:` nor `postgres:`"))
    }
}

/// A file in write-ahead mode, where readers do not wait for a writer. Each commit reaches the disk.
pub(super) fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging()
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            StorePlace::File(path) => write!(f, "the store `{}`", path.display()),
            StorePlace::Postgres(options) => {
                let database = options.get_database().unwrap_or("(default)");
                write!(
                    f,
                    "the store `{database}` on {}:{}",
                    options.get_host(),
                    options.get_port()
                )
            }
        }
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parse(url: &str) -> Result<StoreAddress, StoreError> {
        StoreAddress::parse(&Secret::new(url), Path::new("/srv"))
    }

    #[rstest]
    #[case("sqlite:///ralph.db", "the store `/srv/ralph.db`")]
    #[case("sqlite:////var/ralph.db", "the store `/var/ralph.db`")]
    #[case(
        "postgres://me:CANARY@db.example:6432/runs",
        "the store `runs` on db.example:6432"
    )]
    #[case(
        "postgresql://me:CANARY@db.example/runs",
        "the store `runs` on db.example:5432"
    )]
    fn an_address_is_shown_without_its_password(#[case] url: &str, #[case] shown: &str) {
        let address = parse(url).unwrap();
        assert_eq!(address.to_string(), shown);
        assert_eq!(format!("{address:?}"), format!("StoreAddress({shown})"));
    }

    #[rstest]
    #[case("mysql://CANARY@db/runs", "neither `sqlite:` nor `postgres:`")]
    #[case("sqlite://CANARY.db", "three slashes")]
    #[case("sqlite:///:memory:", "in memory")]
    #[case("postgres://me:CANARY@[db/runs", "not a valid URL")]
    fn another_address_is_refused(#[case] url: &str, #[case] problem: &str) {
        let error = parse(url).unwrap_err().to_string();
        assert!(error.contains(problem) && !error.contains("CANARY"), "{error}");
    }
}
