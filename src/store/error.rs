//! Errors of the store.

use std::path::PathBuf;

use thiserror::Error;

/// An error of the store. None of them contains the address, which may hold a password.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The address has another form.
    #[error("the address of the store is not usable: {problem}")]
    Address {
        /// What is wrong with it.
        problem: String,
    },
    /// A directory for the file could not be created.
    #[error("cannot create `{}`", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The database does not answer, or refuses the login.
    #[error("cannot open {store}")]
    Open {
        /// The database, without its password.
        store: String,
        /// The cause.
        source: sqlx::Error,
    },
    /// A newer ralph wrote the database.
    #[error("{store} has format {found}; this ralph knows formats up to {known}")]
    NewerFormat {
        /// The database, without its password.
        store: String,
        /// The format of the database.
        found: i64,
        /// The newest format that is known.
        known: i64,
    },
    /// A statement failed. Whether it took effect is not known when the connection was lost.
    #[error("cannot {operation} in the store")]
    Statement {
        /// The operation, as a verb.
        operation: &'static str,
        /// The cause.
        source: sqlx::Error,
    },
    /// A row cannot be read.
    #[error("the store has a row that cannot be read: {problem}")]
    Row {
        /// What is wrong with it.
        problem: String,
    },
    /// A label has another form.
    #[error("`{text}` is not a label: expected `key=value`")]
    Label {
        /// The text.
        text: String,
    },
}

impl StoreError {
    /// For `map_err`: the failure of a statement.
    pub(super) fn statement(operation: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Statement { operation, source }
    }

    /// A row with this problem. Takes the value, for `map_err`.
    #[expect(clippy::needless_pass_by_value, reason = "`map_err` passes the error itself")]
    pub(super) fn row(problem: impl ToString) -> Self {
        Self::Row {
            problem: problem.to_string(),
        }
    }

    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Address { .. } => {
                Some("RALPH_DB_URL is `sqlite:///FILE` or `postgres://USER:PASSWORD@HOST/DATABASE`")
            }
            Self::NewerFormat { .. } => Some("use the newer ralph, or set RALPH_DB_URL to another database"),
            Self::Open { .. } => Some("check RALPH_DB_URL, and that the database is running"),
            Self::Row { .. } => Some("`ralph store rebuild` writes the index of runs again"),
            Self::Directory { .. } | Self::Statement { .. } | Self::Label { .. } => None,
        }
    }
}
