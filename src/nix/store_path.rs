//! The name of something in the Nix store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use super::nixbase32;

/// Where the store is. An output says this path also when the store itself lies elsewhere.
pub const STORE_DIR: &str = "/nix/store";

const DIGEST_BYTES: usize = 20;
const DIGEST_DIGITS: usize = 32;
const LONGEST_NAME: usize = 211;

/// `<digest>-<name>`: one entry of the store, never something below one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorePath {
    digest: [u8; DIGEST_BYTES],
    name: String,
}

/// Text that names nothing in a store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StorePathError {
    /// It is not directly below [`STORE_DIR`].
    #[error("`{0}` is not directly below {STORE_DIR}")]
    OutsideStore(String),
    /// The part before the first dash is no digest.
    #[error("`{0}` does not begin with a digest and a dash")]
    Digest(String),
    /// The part after the digest is no name.
    #[error("`{0}` holds a name that the store does not allow")]
    Name(String),
}

impl StorePath {
    /// Reads `/nix/store/<digest>-<name>`.
    pub fn from_absolute_path(path: &str) -> Result<Self, StorePathError> {
        path.strip_prefix(STORE_DIR)
            .and_then(|rest| rest.strip_prefix('/'))
            .filter(|entry| !entry.contains('/'))
            .ok_or_else(|| StorePathError::OutsideStore(path.to_owned()))?
            .parse()
    }

    /// The path in the file system.
    #[must_use]
    pub fn to_absolute_path(&self) -> PathBuf {
        Path::new(STORE_DIR).join(self.to_string())
    }

    /// The digest before the dash.
    #[must_use]
    pub fn digest(&self) -> &[u8; DIGEST_BYTES] {
        &self.digest
    }

    /// What stands after the digest.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Reads `<digest>-<name>`.
impl FromStr for StorePath {
    type Err = StorePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let no_digest = || StorePathError::Digest(text.to_owned());
        let (digest, rest) = text.split_at_checked(DIGEST_DIGITS).ok_or_else(no_digest)?;
        let name = rest.strip_prefix('-').ok_or_else(no_digest)?;
        let digest = nixbase32::decode(digest)
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(no_digest)?;
        if !is_name(name) {
            return Err(StorePathError::Name(text.to_owned()));
        }
        Ok(Self {
            digest,
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", nixbase32::encode(&self.digest), self.name)
    }
}

/// `.` and `..`, alone or before a dash, are refused: as parts of a file name they would lead elsewhere.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "+-._?=".contains(c);
    let first = name.split('-').next().unwrap_or_default();
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(allowed) && first != "." && first != ".."
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const ENTRY: &str = "00bgd045z0d4icpbc2yyz4gx48ak44la-net-tools-1.60_p20170221182432";

    #[test]
    fn a_path_is_printed_as_it_was_read() {
        let path = StorePath::from_absolute_path(&format!("/nix/store/{ENTRY}")).unwrap();
        assert_eq!(path.name(), "net-tools-1.60_p20170221182432");
        assert_eq!(path.digest()[..4], [0x8a, 0x12, 0x32, 0x15]);
        assert_eq!(path.to_string(), ENTRY);
        assert_eq!(path.to_absolute_path(), Path::new("/nix/store").join(ENTRY));
    }

    #[rstest]
    #[case(ENTRY)]
    #[case("/nix/store")]
    #[case("/nix/storex/00bgd045z0d4icpbc2yyz4gx48ak44la-a")]
    #[case("/nix/store/00bgd045z0d4icpbc2yyz4gx48ak44la-a/bin")]
    fn what_is_not_directly_in_the_store_is_refused(#[case] path: &str) {
        let error = StorePath::from_absolute_path(path).unwrap_err();
        assert_eq!(error, StorePathError::OutsideStore(path.to_owned()));
    }

    #[rstest]
    #[case("")]
    #[case("00bgd045z0d4icpbc2yyz4gx48ak44la")]
    #[case("00bgd045z0d4icpbc2yyz4gx48ak44lu-a")]
    #[case("00bgd045z0d4icpbc2yyz4gx48ak44laXa")]
    #[case("00bgd045z0d4icpbc2yyz4gx48ak44l\u{e4}-a")]
    fn a_path_needs_a_digest(#[case] text: &str) {
        assert_eq!(
            text.parse::<StorePath>(),
            Err(StorePathError::Digest(text.to_owned()))
        );
    }

    #[rstest]
    #[case("")]
    #[case(".")]
    #[case("..")]
    #[case(".-x")]
    #[case("a/b")]
    #[case("a b")]
    #[case("\u{e4}")]
    fn a_path_needs_a_good_name(#[case] name: &str) {
        let text = format!("00bgd045z0d4icpbc2yyz4gx48ak44la-{name}");
        assert_eq!(text.parse::<StorePath>(), Err(StorePathError::Name(text.clone())));
    }

    proptest! {
        #[test]
        fn hostile_text_is_refused_or_read_exactly(text in "(/nix/store/)?[0-9a-z]{0,33}-?.{0,8}") {
            if let Ok(path) = text.parse::<StorePath>() {
                prop_assert_eq!(path.to_string(), text);
            }
        }
    }
}
