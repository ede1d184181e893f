//! References to flakes: a directory, or an address that is pinned to a commit.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use super::error::NixError;
use super::output::{Attribute, AttributeError};

/// A flake, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlakeRef {
    /// A directory with a `flake.nix`, in a git repository.
    Dir(PathBuf),
    /// An address with a commit or a content hash: `github:owner/name/<commit>`.
    Pinned(String),
}

impl FlakeRef {
    /// Resolves a relative directory against `dir`.
    #[must_use]
    pub fn resolve(&self, dir: &Path) -> Self {
        match self {
            Self::Dir(relative) => Self::Dir(dir.join(relative)),
            Self::Pinned(url) => Self::Pinned(url.clone()),
        }
    }
}

/// Text that is not a [`FlakeRef`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FlakeRefError {
    /// It names no commit, so an image built from it could be stale without notice.
    #[error(
        "`{0}` is not pinned to a commit: expected a directory (`./nix`) or an address with a commit (`github:owner/name/<commit>`)"
    )]
    Unpinned(String),
    /// The part after the `#` is not a package name.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
}

/// A flake and, when the text names one after a `#`, its package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installable {
    /// The flake.
    pub flake: FlakeRef,
    /// The package.
    pub attribute: Option<Attribute>,
}

/// Parses `.`, `./images#sandbox`, `github:owner/name/<commit>#dockerImage`.
impl FromStr for Installable {
    type Err = FlakeRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (flake, attribute) = match text.split_once('#') {
            Some((flake, attribute)) => (flake, Some(attribute.parse()?)),
            None => (text, None),
        };
        let flake = if flake.starts_with(['.', '/']) {
            FlakeRef::Dir(PathBuf::from(flake))
        } else if flake.contains(':') && is_pinned(flake) {
            FlakeRef::Pinned(flake.to_owned())
        } else {
            return Err(FlakeRefError::Unpinned(text.to_owned()));
        };
        Ok(Self { flake, attribute })
    }
}

/// A flake in a git repository on the host. Nix reads its tracked files from the working tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalFlake {
    /// The root of the repository.
    pub(super) root: PathBuf,
    /// The flake's directory relative to the root; empty if it is the root.
    pub(super) dir: PathBuf,
}

impl LocalFlake {
    /// The flake in this directory. Looks upwards for its repository, as Nix does.
    pub(super) fn find(dir: &Path) -> Result<Self, NixError> {
        let dir = fs::canonicalize(dir).map_err(NixError::file("open the directory", dir))?;
        let root = dir
            .ancestors()
            .find(|above| above.join(".git").exists())
            .ok_or_else(|| NixError::NotInGit(dir.clone()))?
            .to_owned();
        let dir = dir.strip_prefix(&root).map(Path::to_owned).unwrap_or_default();
        Ok(Self { root, dir })
    }

    /// The flake's directory in the file system.
    pub(super) fn path(&self) -> PathBuf {
        self.root.join(&self.dir)
    }
}

/// Whether the address contains a full commit id or a content hash.
fn is_pinned(url: &str) -> bool {
    let is_commit = |part: &str| part.len() == 40 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut parts = url.split(['/', '?', '&']);
    parts.any(|part| {
        is_commit(part.strip_prefix("rev=").unwrap_or(part)) || part.starts_with("narHash=sha256-")
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const COMMIT: &str = "b3d51a0365f6695e7dd5cdf3e180604530ed33b4";

    #[rstest]
    #[case(".", ".", None)]
    #[case("./nix/images#sandbox", "./nix/images", Some("sandbox"))]
    #[case("/srv/flake", "/srv/flake", None)]
    fn a_path_is_a_directory(#[case] text: &str, #[case] dir: &str, #[case] attribute: Option<&str>) {
        let read: Installable = text.parse().unwrap();
        assert_eq!(read.flake, FlakeRef::Dir(dir.into()));
        assert_eq!(read.attribute.map(|name| name.to_string()).as_deref(), attribute);
    }

    #[rstest]
    #[case("github:o/n/COMMIT")]
    #[case("git+https://example.org/n?ref=main&rev=COMMIT")]
    #[case("https://example.org/n.tar.gz?narHash=sha256-4vhDuZ7OZaZmKKrnDpxLZZpGIJvAeMtK6FKLJYUtAdw=")]
    fn an_address_with_a_commit_is_accepted(#[case] text: &str) {
        let text = text.replace("COMMIT", COMMIT);
        let read: Installable = text.parse().unwrap();
        assert_eq!(read.flake, FlakeRef::Pinned(text));
    }

    #[rstest]
    #[case("nixpkgs")]
    #[case("github:o/n")]
    #[case("github:o/n/main#dockerImage")]
    #[case("")]
    fn an_unpinned_address_is_rejected(#[case] text: &str) {
        assert_eq!(
            text.parse::<Installable>(),
            Err(FlakeRefError::Unpinned(text.to_owned()))
        );
    }

    #[test]
    fn a_directory_outside_a_repository_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(LocalFlake::find(dir.path()), Err(NixError::NotInGit(_))));
    }
}
