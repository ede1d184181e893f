//! Errors of the run directory.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::id::RunId;

/// An error of the run directory: its files, its journal or its lock.
#[derive(Debug, Error)]
pub enum StateError {
    /// A file could not be read or written.
    #[error("cannot {operation} `{}`", path.display())]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file cannot be parsed.
    #[error("cannot parse `{}` line {line}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The cause.
        source: serde_json::Error,
    },
    /// A newer ralph wrote the file.
    #[error("`{}` has format {found}; this ralph knows formats up to {known}", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that is known.
        known: u32,
    },
    /// A value cannot be written as JSON.
    #[error("cannot encode the contents of `{}`", path.display())]
    Encode {
        /// The file that was to be written.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// There is no such run.
    #[error("no run `{run}` in `{}`", runs.display())]
    NoSuchRun {
        /// The run.
        run: RunId,
        /// The directory of all runs.
        runs: PathBuf,
    },
    /// Another process owns the run.
    #[error("run `{run}` is being worked on by {owner}")]
    Owned {
        /// The run.
        run: RunId,
        /// The owner, for people.
        owner: String,
    },
    /// Another process took the run over. This one may write nothing any more.
    #[error("run `{run}` was taken over by {owner}")]
    TakenOver {
        /// The run.
        run: RunId,
        /// The new owner, for people.
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

    /// For `map_err`: a file that is one JSON value cannot be parsed.
    pub(crate) fn corrupt(path: impl Into<PathBuf>) -> impl FnOnce(serde_json::Error) -> Self {
        let path = path.into();
        move |source| Self::Corrupt {
            path,
            line: source.line(),
            source,
        }
    }

    /// For `map_err`: a value cannot be written as JSON.
    pub(crate) fn encode(path: impl Into<PathBuf>) -> impl FnOnce(serde_json::Error) -> Self {
        let path = path.into();
        move |source| Self::Encode { path, source }
    }
}
