//! Paths in a repository, and names that are forbidden there.

use std::collections::{HashMap, HashSet};
use std::fmt;

use thiserror::Error;
use unicode_normalization::UnicodeNormalization;

/// The directory of the run files in a clone. ralph never commits it.
const PRIVATE_DIR: &[u8] = b".ralph";
/// The task file in a clone. Only the runner changes it.
const TASK_FILE: &[u8] = b"ralph_task.md";

/// A path as git stores it: bytes separated by slashes, relative to the root of the repository.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoPath(Vec<u8>);

impl RepoPath {
    /// Creates a path from the bytes that git printed.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The path as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is one of the run files (`.ralph/`, `ralph_task.md`).
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.0 == TASK_FILE || self.components().next() == Some(PRIVATE_DIR)
    }

    /// The directory and the last component.
    #[must_use]
    pub fn split(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&self.0[..slash], &self.0[slash + 1..]),
            None => (&[], &self.0),
        }
    }

    /// Its components.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/')
    }
}

/// Escapes bytes that could confuse a terminal or a reader.
impl fmt::Display for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' | '`' => write!(f, "\\{c}")?,
                    c if c.is_control() || is_invisible(c) => write!(f, "{}", c.escape_default())?,
                    c => write!(f, "{c}")?,
                }
            }
            chunk
                .invalid()
                .iter()
                .try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

impl From<&str> for RepoPath {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// Why a name is forbidden in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameProblem {
    /// It is `.git`, or another spelling of it on some file system.
    #[error("some file systems treat it as a git directory")]
    DotGit,
    /// It is `.`, `..` or empty, so the path leads elsewhere.
    #[error("it leads out of its directory")]
    Traversal,
}

/// The first problem of a path, if any.
pub(super) fn name_problem(path: &RepoPath) -> Option<NameProblem> {
    path.components().find_map(component_problem)
}

/// Finds two names of one directory that are the same on a file system that folds case or normalises Unicode.
///
/// Only pairs with a name in `added` count: what is already in the user's repository is not checked.
pub(super) fn collision<'a>(names: &'a [Vec<u8>], added: &HashSet<&[u8]>) -> Option<(&'a [u8], &'a [u8])> {
    let mut seen: HashMap<String, &'a [u8]> = HashMap::with_capacity(names.len());
    for name in names {
        if let Some(first) = seen.insert(folded(name), name)
            && (added.contains(first) || added.contains(name.as_slice()))
        {
            return Some((first, name));
        }
    }
    None
}

fn component_problem(component: &[u8]) -> Option<NameProblem> {
    if matches!(component, b"" | b"." | b"..") {
        return Some(NameProblem::Traversal);
    }
    // On NTFS a backslash is a separator, and a colon starts the name of an alternate stream.
    let aliases = component
        .split(|byte| *byte == b'\\')
        .map(|part| part.split(|byte| *byte == b':').next().unwrap_or(part));
    for alias in aliases {
        let text = String::from_utf8_lossy(alias);
        let visible: String = text
            .chars()
            .filter(|c| !is_invisible(*c))
            .flat_map(char::to_lowercase)
            .collect();
        let trimmed = visible.trim_end_matches([' ', '.']);
        if matches!(trimmed, ".git" | "git~1") {
            return Some(NameProblem::DotGit);
        }
        if alias == b".." {
            return Some(NameProblem::Traversal);
        }
    }
    None
}

/// Invisible code points, which HFS+ ignores in names.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{200b}' | '\u{feff}')
}

fn folded(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) => text.nfkc().flat_map(char::to_lowercase).nfc().collect(),
        // Different invalid names must stay different.
        Err(_) => format!("\0{}", RepoPath::new(name)),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain(".git")]
    #[case::upper("a/.GIT/hooks/pre-commit")]
    #[case::mixed(".Git/config")]
    #[case::ntfs_short_name("GIT~1/config")]
    #[case::ntfs_trailing(".git . .")]
    #[case::ntfs_stream(".git::$INDEX_ALLOCATION/config")]
    #[case::ntfs_backslash("a\\.git\\config")]
    #[case::hfs_invisible(".g\u{200c}it/config")]
    #[case::hfs_bom("\u{feff}.git")]
    fn a_name_for_the_git_directory_is_found(#[case] path: &str) {
        assert_eq!(name_problem(&path.into()), Some(NameProblem::DotGit), "{path}");
    }

    #[rstest]
    #[case("../x")]
    #[case("a/../b")]
    #[case("/etc/passwd")]
    #[case("a//b")]
    #[case("a/./b")]
    #[case("..\\x")]
    fn a_path_that_leads_elsewhere_is_found(#[case] path: &str) {
        assert_eq!(name_problem(&path.into()), Some(NameProblem::Traversal), "{path}");
    }

    #[rstest]
    #[case(".gitignore")]
    #[case(".github/workflows/ci.yml")]
    #[case("git")]
    #[case("a..b/...c")]
    #[case("it's \"odd\"\n")]
    fn an_odd_but_harmless_path_passes(#[case] path: &str) {
        assert_eq!(name_problem(&path.into()), None, "{path}");
    }

    #[rstest]
    #[case::case("Readme", "README", true)]
    #[case::composed("caf\u{e9}", "cafe\u{301}", true)]
    #[case::different("a", "b", false)]
    fn names_that_some_systems_take_for_one_collide(
        #[case] one: &str,
        #[case] other: &str,
        #[case] collides: bool,
    ) {
        let names = [one.as_bytes().to_vec(), other.as_bytes().to_vec()];
        assert_eq!(
            collision(&names, &HashSet::from([other.as_bytes()])).is_some(),
            collides
        );
        assert_eq!(
            collision(&names, &HashSet::new()),
            None,
            "what was there before is the user's own"
        );
    }

    #[test]
    fn bytes_that_are_no_text_collide_with_nothing_and_print_as_escapes() {
        let names = [b"a\xff".to_vec(), b"a\xfe".to_vec()];
        assert_eq!(
            collision(&names, &HashSet::from([b"a\xff".as_slice(), b"a\xfe"])),
            None
        );
        assert_eq!(RepoPath::new(*b"a\xff\n\x1b").to_string(), r"a\xff\n\u{1b}");
    }

    #[rstest]
    #[case(".ralph/notes.md", true)]
    #[case("ralph_task.md", true)]
    #[case(".ralphrc", false)]
    #[case("docs/ralph_task.md", false)]
    fn the_runs_own_files_are_private(#[case] path: &str, #[case] private: bool) {
        assert_eq!(RepoPath::from(path).is_private(), private);
    }
}
