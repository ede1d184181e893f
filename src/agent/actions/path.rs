//! Paths inside the clone.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A relative path below the clone's root, such as `src/a.rs`. It has no `..` and is not one of git's or ralph's files.
///
/// It may still name a symbolic link; the sandbox refuses those when the path is used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelPath(String);

/// Why a text is not a path inside the clone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// The text is empty.
    #[error("the path is empty")]
    Empty,
    /// It names the clone's root.
    #[error("`{0}` is the clone itself: name something in it")]
    Root(String),
    /// It is absolute.
    #[error("`{0}` is absolute: write it relative to the clone's root")]
    Absolute(String),
    /// It contains `..` or a name that a file system reads as `..`.
    #[error("`{0}` has the component `..`, or one of only dots and spaces: write it from the clone's root")]
    Upwards(String),
    /// It contains a backslash.
    #[error("`{0}` has a backslash: separate directories with `/`")]
    Backslash(String),
    /// It contains a NUL byte, a line break or another control character.
    #[error("{0:?} has a control character")]
    Control(String),
    /// It is in `.git`, under that name or an alias of some file system.
    #[error("`{0}` is in git's own directory: use the `commit` action, or run git")]
    Git(String),
    /// It is in `.ralph`.
    #[error("`{0}` belongs to ralph; in `.ralph/` you may write only {files}", files = AGENT_FILES.join(", "))]
    Ralph(String),
    /// It is longer than file systems allow.
    #[error(
        "the path that begins with `{0}` is too long: at most {MAX_PATH} bytes, and {MAX_COMPONENT} between slashes"
    )]
    TooLong(String),
}

/// The files of `.ralph/` that the agent may write. The runner takes over only what is appended to the guardrails.
const AGENT_FILES: [&str; 3] = [".ralph/notes.md", ".ralph/progress.md", ".ralph/guardrails.md"];

const MAX_PATH: usize = 4000;
const MAX_COMPONENT: usize = 255;

impl RelPath {
    /// The value of `format` in the JSON schema.
    pub(super) const FORMAT: &'static str = "path-in-clone";

    /// Parses and normalizes a path: `./a//b/` becomes `a/b`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        Self::below_root(text)?.ok_or_else(|| PathError::Root(text.to_owned()))
    }

    /// Like [`RelPath::parse`], but accepts `.`, the clone's root, as `None`.
    pub(super) fn below_root(text: &str) -> Result<Option<Self>, PathError> {
        check_text(text)?;
        let named: Vec<&str> = text
            .split('/')
            .filter(|part| !matches!(*part, "" | "."))
            .collect();
        for component in &named {
            check_component(component, text)?;
        }
        let Some(first) = named.first() else {
            return Ok(None);
        };
        let path = named.join("/");
        if begins_with_drive(&path) {
            return Err(PathError::Absolute(text.to_owned()));
        }
        if is_alias(first, "ralph") && !AGENT_FILES.contains(&path.as_str()) {
            return Err(PathError::Ralph(text.to_owned()));
        }
        Ok(Some(Self(path)))
    }

    /// The path as text, separated by `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path, relative to the clone's root.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RelPath {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        Self::parse(&text)
    }
}

impl From<RelPath> for String {
    fn from(path: RelPath) -> Self {
        path.0
    }
}

impl JsonSchema for RelPath {
    fn schema_name() -> Cow<'static, str> {
        "RelPath".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": Self::FORMAT })
    }
}

fn check_text(text: &str) -> Result<(), PathError> {
    let named = || text.to_owned();
    if text.is_empty() {
        return Err(PathError::Empty);
    }
    if text.len() > MAX_PATH || text.split('/').any(|part| part.len() > MAX_COMPONENT) {
        return Err(PathError::TooLong(text.chars().take(40).collect()));
    }
    if text.chars().any(char::is_control) {
        return Err(PathError::Control(named()));
    }
    if text.contains('\\') {
        return Err(PathError::Backslash(named()));
    }
    if text.starts_with('/') {
        return Err(PathError::Absolute(named()));
    }
    Ok(())
}

/// Whether the path begins with a Windows drive, such as `C:`.
fn begins_with_drive(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':'
}

fn check_component(component: &str, whole: &str) -> Result<(), PathError> {
    let visible = without_ignored(component);
    if visible.trim_end_matches(['.', ' ']).is_empty() {
        return Err(PathError::Upwards(whole.to_owned()));
    }
    if is_alias(component, "git") {
        return Err(PathError::Git(whole.to_owned()));
    }
    Ok(())
}

/// Whether some file system opens `.{name}` for this component: NTFS and HFS+ ignore case, NTFS also accepts a short
/// name and trailing dots, spaces and stream names, and HFS+ ignores some characters.
fn is_alias(component: &str, name: &str) -> bool {
    let visible = without_ignored(component).to_lowercase();
    let file = visible.split(':').next().unwrap_or_default();
    let file = file.trim_end_matches(['.', ' ']);
    file.strip_prefix('.') == Some(name) || file.strip_suffix("~1") == Some(name)
}

/// Removes the characters that HFS+ ignores.
fn without_ignored(component: &str) -> String {
    const IGNORED: [RangeInclusive<char>; 4] = [
        '\u{200c}'..='\u{200f}',
        '\u{202a}'..='\u{202e}',
        '\u{206a}'..='\u{206f}',
        '\u{feff}'..='\u{feff}',
    ];
    let is_seen = |c: &char| !IGNORED.iter().any(|range| range.contains(c));
    component.chars().filter(is_seen).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a", "a")]
    #[case("src/a.rs", "src/a.rs")]
    #[case("./a//b", "a/b")]
    #[case("a/./b/", "a/b")]
    #[case(".gitignore", ".gitignore")]
    #[case(".github/workflows/ci.yml", ".github/workflows/ci.yml")]
    #[case("git/a", "git/a")]
    #[case("a..b/c...", "a..b/c...")]
    #[case("ralph_task.md", "ralph_task.md")]
    #[case("./.ralph/notes.md", ".ralph/notes.md")]
    #[case(".ralph/progress.md", ".ralph/progress.md")]
    #[case(".ralph/guardrails.md", ".ralph/guardrails.md")]
    #[case("fixtures/.ralph/guardrails.md", "fixtures/.ralph/guardrails.md")]
    #[case("größe/日本.txt", "größe/日本.txt")]
    fn paths_are_normalized(#[case] text: &str, #[case] form: &str) {
        assert_eq!(RelPath::parse(text).unwrap().as_str(), form);
    }

    #[rstest]
    #[case("", PathError::Empty)]
    #[case(".", PathError::Root(".".into()))]
    #[case(".//.", PathError::Root(".//.".into()))]
    fn the_root_is_not_a_path(#[case] text: &str, #[case] error: PathError) {
        assert_eq!(RelPath::parse(text), Err(error));
    }

    #[test]
    fn the_root_is_a_directory() {
        assert_eq!(RelPath::below_root("./"), Ok(None));
        assert_eq!(RelPath::below_root("a").unwrap().unwrap().as_str(), "a");
        assert_eq!(RelPath::below_root(""), Err(PathError::Empty));
    }

    #[rstest]
    #[case("/etc/passwd")]
    #[case("//a")]
    #[case("C:/a")]
    #[case("c:a")]
    #[case("./C:/a")]
    fn an_absolute_path_is_refused(#[case] text: &str) {
        assert_eq!(RelPath::parse(text), Err(PathError::Absolute(text.into())));
    }

    #[rstest]
    #[case("..")]
    #[case("../a")]
    #[case("a/../b")]
    #[case("a/..")]
    #[case("a/.. /b")]
    #[case("a/.../b")]
    #[case("a/.\u{200c}./b")]
    #[case("a/ /b")]
    fn a_path_upwards_is_refused(#[case] text: &str) {
        assert_eq!(RelPath::parse(text), Err(PathError::Upwards(text.into())));
    }

    #[rstest]
    #[case("a\\..\\b")]
    #[case("..\\a")]
    #[case(".git\\config")]
    fn a_backslash_is_refused(#[case] text: &str) {
        assert_eq!(RelPath::parse(text), Err(PathError::Backslash(text.into())));
    }

    #[rstest]
    #[case("a\0b")]
    #[case("a\nb")]
    #[case("\u{7f}")]
    fn a_control_character_is_refused(#[case] text: &str) {
        assert_eq!(RelPath::parse(text), Err(PathError::Control(text.into())));
    }

    #[rstest]
    #[case(".git")]
    #[case(".git/config")]
    #[case("./.git/hooks/pre-commit")]
    #[case("sub/.git/config")]
    #[case(".GIT/config")]
    #[case(".Git")]
    #[case(".git./config")]
    #[case(".git . /config")]
    #[case(".git::$INDEX_ALLOCATION/config")]
    #[case("git~1/config")]
    #[case("GIT~1")]
    #[case(".g\u{200c}it/config")]
    #[case("\u{feff}.GiT")]
    fn gits_own_directory_is_refused_under_every_name(#[case] text: &str) {
        assert_eq!(RelPath::parse(text), Err(PathError::Git(text.into())));
    }

    #[rstest]
    #[case(".ralph")]
    #[case(".ralph/errors.log")]
    #[case(".ralph/iterations/1/prompt.md")]
    #[case(".ralph/notes.md/x")]
    #[case(".RALPH/notes.md")]
    #[case(".ralph./errors.log")]
    #[case("ralph~1/errors.log")]
    fn ralphs_own_files_are_refused(#[case] text: &str) {
        assert_eq!(RelPath::parse(text), Err(PathError::Ralph(text.into())));
    }

    #[test]
    fn a_path_too_long_for_a_file_system_is_refused() {
        let long_name = "a".repeat(MAX_COMPONENT + 1);
        let long_path = "a/".repeat(MAX_PATH);
        assert!(matches!(RelPath::parse(&long_name), Err(PathError::TooLong(_))));
        assert!(matches!(RelPath::parse(&long_path), Err(PathError::TooLong(_))));
    }

    fn tricky_path() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            Just("..".to_owned()),
            Just(".".to_owned()),
            Just(String::new()),
            Just(".git".to_owned()),
            Just("\\".to_owned()),
            Just(" ".to_owned()),
            Just("\u{200c}".to_owned()),
            "[a-z.~: ]{0,6}",
            any::<String>(),
        ];
        proptest::collection::vec((part, prop_oneof![Just("/"), Just("")]), 0..8).prop_map(|parts| {
            parts
                .into_iter()
                .map(|(part, separator)| part + separator)
                .collect()
        })
    }

    proptest! {
        #[test]
        fn no_path_escapes_when_joined(text in tricky_path()) {
            if let Ok(path) = RelPath::parse(&text) {
                let joined = Path::new("/clone").join(path.as_path());
                prop_assert!(joined.starts_with("/clone") && joined != Path::new("/clone"));
                prop_assert!(path.as_path().components().all(|part| matches!(part, Component::Normal(_))));
                let hidden = path.as_path().components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git"));
                prop_assert!(!hidden);
            }
        }

        #[test]
        fn normalizing_is_idempotent(text in tricky_path()) {
            if let Ok(path) = RelPath::parse(&text) {
                prop_assert_eq!(RelPath::parse(path.as_str()), Ok(path));
            }
        }
    }
}
