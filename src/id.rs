//! Ids that are validated when they are created, because they end up in file names, branch names and labels.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The id of a run, for example `r7k2m9xq4`. Safe as a file name, a ref component and a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

/// A text is not a run id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a run id: expected `r` and 4 to 31 lower-case letters or digits, as `ralph status` lists them"
)]
pub struct RunIdError(String);

const ALPHABET: &[u8] = b"23456789abcdefghjkmnpqrstuvwxyz";

impl RunId {
    /// A new random id.
    #[must_use]
    pub fn random() -> Self {
        let tail: String = (0..8)
            .map(|_| char::from(ALPHABET[fastrand::usize(..ALPHABET.len())]))
            .collect();
        Self(format!("r{tail}"))
    }

    /// Parses an id that a person typed or a file contains.
    pub fn parse(text: &str) -> Result<Self, RunIdError> {
        let bytes = text.as_bytes();
        let shaped = (5..=32).contains(&bytes.len())
            && bytes[0] == b'r'
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if shaped {
            Ok(Self(text.to_owned()))
        } else {
            Err(RunIdError(text.to_owned()))
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<String> for RunId {
    type Error = RunIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

/// A full git commit id: 40 (SHA-1) or 64 (SHA-256) lower-case hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectId(String);

/// A text is not a git object id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a git object id")]
pub struct ObjectIdError(String);

impl ObjectId {
    /// Parses an id as git prints it, with surrounding white space.
    pub fn parse(text: &str) -> Result<Self, ObjectIdError> {
        let text = text.trim();
        let shaped = matches!(text.len(), 40 | 64)
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if shaped {
            Ok(Self(text.to_owned()))
        } else {
            Err(ObjectIdError(text.to_owned()))
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first ten digits, for people.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..10]
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ObjectId {
    type Error = ObjectIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<ObjectId> for String {
    fn from(id: ObjectId) -> Self {
        id.0
    }
}

/// A repository on GitHub, for example `rust-lang/cargo`. GitHub ignores case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryName {
    owner: String,
    name: String,
}

/// A text is not the name of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a GitHub repository: expected `owner/name`")]
pub struct RepositoryNameError(String);

impl RepositoryName {
    /// Parses `owner/name`.
    pub fn parse(text: &str) -> Result<Self, RepositoryNameError> {
        let wrong = || RepositoryNameError(text.to_owned());
        let (owner, name) = text.split_once('/').ok_or_else(wrong)?;
        let of_owner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        let of_name = |b: u8| of_owner(b) || b == b'_' || b == b'.';
        let shaped = (1..=39).contains(&owner.len())
            && (1..=100).contains(&name.len())
            && owner.bytes().all(of_owner)
            && name.bytes().all(of_name)
            && ![".", ".."].contains(&name)
            && !name.to_ascii_lowercase().ends_with(".git");
        if shaped {
            Ok(Self {
                owner: owner.to_owned(),
                name: name.to_owned(),
            })
        } else {
            Err(wrong())
        }
    }

    /// Whether it has this owner and name.
    #[must_use]
    pub fn is(&self, owner: &str, name: &str) -> bool {
        self.owner.eq_ignore_ascii_case(owner) && self.name.eq_ignore_ascii_case(name)
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_id_can_be_read_back() {
        let id = RunId::random();
        assert_eq!(RunId::parse(id.as_str()), Ok(id));
    }

    #[test]
    fn an_id_is_safe_as_a_file_name_and_a_ref() {
        for bad in [
            "",
            "r",
            "x2345",
            "r23/45",
            "r23..45",
            "R2345",
            "r2345 ",
            "r-2345",
            &"r2".repeat(20),
        ] {
            assert!(RunId::parse(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn an_object_id_is_whole_and_lower_case() {
        let sha = "a".repeat(40);
        assert_eq!(ObjectId::parse(&format!("{sha}\n")).unwrap().as_str(), sha);
        for bad in ["", "abc", &"A".repeat(40), &"g".repeat(40), "HEAD"] {
            assert!(ObjectId::parse(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_repository_has_an_owner_and_a_name() {
        for text in ["a/b", "rust-lang/cargo", "a/.github", "O-1/a_b.c"] {
            assert_eq!(RepositoryName::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "", "a", "/b", "a/", "a/b/c", "a/..", "a/b.git", "a b/c", "a_b/c", "a/b?c", "a/%2e",
        ] {
            assert!(RepositoryName::parse(text).is_err(), "{text}");
        }
    }
}
