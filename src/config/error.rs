//! Mistakes in a configuration.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::key::KeyPath;
use super::layer::SettingPlace;

/// Why a configuration was refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A file cannot be read.
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
        findings: Vec<ConfigFinding>,
    },
}

impl ConfigError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("check the path of the configuration file")
            }
            Self::Read { .. } => None,
            Self::Invalid { .. } => Some("`ralph config schema` describes every key"),
        }
    }
}

/// One mistake and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFinding {
    /// Where.
    pub place: SettingPlace,
    /// What is wrong.
    pub problem: ConfigProblem,
}

impl ConfigFinding {
    /// A file that cannot be parsed.
    pub(super) fn syntax(place: SettingPlace, message: impl Into<String>) -> Self {
        Self {
            place,
            problem: ConfigProblem::Syntax(message.into()),
        }
    }
}

impl fmt::Display for ConfigFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// What is wrong with one part of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigProblem {
    /// The file cannot be parsed.
    #[error("{0}")]
    Syntax(String),
    /// There is no such key.
    #[error("unknown key `{key}`{}", did_you_mean(suggestion.as_deref()))]
    UnknownKey {
        /// The key.
        key: KeyPath,
        /// The key that was probably meant.
        suggestion: Option<String>,
    },
    /// There is no such `RALPH_` variable.
    #[error("unknown variable{}", did_you_mean(suggestion.as_deref()))]
    UnknownVariable {
        /// The variable that was probably meant.
        suggestion: Option<String>,
    },
    /// The value is of the wrong type or out of range.
    #[error("`{key}`: found {found}, expected {expected}")]
    InvalidValue {
        /// The key.
        key: KeyPath,
        /// The value.
        found: String,
        /// What is allowed.
        expected: String,
    },
    /// The value contradicts another one.
    #[error("`{key}`: {reason}")]
    Contradiction {
        /// The key.
        key: KeyPath,
        /// The contradiction and how to resolve it.
        reason: String,
    },
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

fn lines(findings: &[ConfigFinding]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
