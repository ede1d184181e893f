//! What is wrong with a configuration. Always the user's to mend, so the program exits with 2.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::key::KeyPath;
use super::layer::Place;

/// Why a configuration was refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A file cannot be read; one that a flag names must exist.
    #[error("cannot read the configuration file `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Everything that is wrong in what was read.
    #[error("{}", lines(findings))]
    Invalid {
        /// One entry per mistake, in the order of the layers. Never empty.
        findings: Vec<Finding>,
    },
}

impl ConfigError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("check the path given to `--config`")
            }
            Self::Read { .. } => None,
            Self::Invalid { .. } => Some("`ralph config schema` describes every key"),
        }
    }
}

/// One mistake and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// What is wrong there.
    pub problem: Problem,
}

impl Finding {
    /// That a text is not in the format of its file.
    pub(super) fn syntax(place: Place, message: impl Into<String>) -> Self {
        Self {
            place,
            problem: Problem::Syntax(message.into()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// What is wrong with one thing in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// The text is not in the format of its file.
    #[error("{0}")]
    Syntax(String),
    /// No such key.
    #[error("unknown key `{key}`{}", did_you_mean(suggestion.as_deref()))]
    UnknownKey {
        /// The key.
        key: KeyPath,
        /// The key that was probably meant.
        suggestion: Option<String>,
    },
    /// No such `RALPH_` variable.
    #[error("unknown variable{}", did_you_mean(suggestion.as_deref()))]
    UnknownVariable {
        /// The variable that was probably meant.
        suggestion: Option<String>,
    },
    /// The value is of the wrong type or out of range.
    #[error("`{key}`: found {found}, expected {expected}")]
    Unfit {
        /// The key.
        key: KeyPath,
        /// What stands there.
        found: String,
        /// What should.
        expected: String,
    },
    /// A value that contradicts another one.
    #[error("`{key}`: {reason}")]
    Contradiction {
        /// The key.
        key: KeyPath,
        /// What it contradicts, and the way out.
        reason: String,
    },
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

fn lines(findings: &[Finding]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
