//! Where a value came from: its layer, which decides precedence, and its position.

use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

/// The layers, lowest precedence first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConfigLayer {
    /// `templates/default.toml`, built into the program.
    Default,
    /// The user's own file.
    User,
    /// The project: `.agent-loop/config.json`, `config/models.yaml`, then `ralph.toml`.
    Project,
    /// The task's frontmatter.
    Task,
    /// Environment variables, from the process or from `.env`.
    Env,
    /// Flags of the command line.
    Flag,
}

impl fmt::Display for ConfigLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The layer that set a value, and the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingOrigin {
    /// The layer.
    pub layer: ConfigLayer,
    /// The position in the layer.
    pub place: SettingPlace,
}

/// Where a value is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingPlace {
    /// In the program itself.
    BuiltIn,
    /// In a file.
    File(FilePosition),
    /// In an environment variable.
    Variable {
        /// Its name.
        name: String,
        /// The position in `.env`; `None` for the environment of the process.
        file: Option<FilePosition>,
    },
    /// In a flag of the command line, for example `--type`.
    Flag(String),
}

impl fmt::Display for SettingPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::File(place) => place.fmt(f),
            Self::Variable { name, file: None } | Self::Flag(name) => f.write_str(name),
            Self::Variable {
                name,
                file: Some(place),
            } => write!(f, "{place}: {name}"),
        }
    }
}

/// A position in a file; line and column count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePosition {
    /// The file.
    pub path: PathBuf,
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl FilePosition {
    /// The position of a byte of the file's text.
    #[must_use]
    pub fn at_offset(path: &Path, text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.path.display(), self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_layers_win() {
        let order = [
            ConfigLayer::Default,
            ConfigLayer::User,
            ConfigLayer::Project,
            ConfigLayer::Task,
            ConfigLayer::Env,
            ConfigLayer::Flag,
        ];
        assert!(order.is_sorted());
    }

    #[rstest::rstest]
    #[case::start(0, "f:1:1")]
    #[case::after_a_wide_character(4, "f:1:3")]
    #[case::second_line(5, "f:2:1")]
    #[case::past_the_end(99, "f:2:3")]
    fn an_offset_becomes_line_and_column(#[case] offset: usize, #[case] expected: &str) {
        let place = FilePosition::at_offset(Path::new("f"), "a€\nbc", offset);
        assert_eq!(place.to_string(), expected);
    }
}
