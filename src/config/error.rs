//! Mistakes in a configuration.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::key::KeyPath;
use super::layer::SettingPlace;
use super::value::ConfigValue;

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
    pub message: String,
}

impl ConfigFinding {
    pub(super) fn new(place: SettingPlace, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { place, message }
    }

    /// A key that does not exist, and the one that was probably meant.
    pub(super) fn unknown_key(place: SettingPlace, key: &KeyPath, suggestion: Option<String>) -> Self {
        Self::new(place, format!("unknown key `{key}`{}", did_you_mean(suggestion)))
    }

    /// A `RALPH_` variable that does not exist, and the one that was probably meant.
    pub(super) fn unknown_variable(place: SettingPlace, suggestion: Option<String>) -> Self {
        Self::new(place, format!("unknown variable{}", did_you_mean(suggestion)))
    }

    /// A value of the wrong type or out of range.
    pub(super) fn invalid_value(
        place: SettingPlace,
        key: &KeyPath,
        found: &ConfigValue,
        expected: &str,
    ) -> Self {
        let found = found.describe();
        Self::new(place, format!("`{key}`: found {found}, expected {expected}"))
    }
}

impl fmt::Display for ConfigFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

fn did_you_mean(suggestion: Option<String>) -> String {
    suggestion.map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

fn lines(findings: &[ConfigFinding]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
