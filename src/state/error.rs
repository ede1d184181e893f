//! What can go wrong with a run's own files.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::id::RunId;

/// What can go wrong with a run's own files.
#[derive(Debug, Error)]
pub enum StateError {
    /// A file could not be read or written.
    #[error("cannot {operation} `{}`", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("`{}` line {line} is not readable", path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// There is no such run.
    #[error("there is no run `{run}` under `{}`", runs.display())]
    NoSuchRun {
        /// The id asked for.
        run: RunId,
        /// Where it was looked for.
        runs: PathBuf,
    },
    /// Another process owns the run.
    #[error("run `{run}` is being worked on by {owner}")]
    Owned {
        /// The run.
        run: RunId,
        /// Who owns it.
        owner: String,
    },
}

impl StateError {
    /// For `map_err`: an I/O error with its operation and file.
    pub(crate) fn io(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            operation,
            path,
            source,
        }
    }
}
