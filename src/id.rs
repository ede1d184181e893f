//! Ids that are validated when they are created, because they end up in file names, branch names and labels.

use std::str::FromStr;

use thiserror::Error;

/// A text that is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is not {expected}")]
pub struct NameError {
    /// The text.
    pub text: String,
    /// A description of a valid name.
    pub expected: &'static str,
}

/// Defines a type for text that passes a check.
macro_rules! checked_text {
    ($(#[doc = $doc:literal])+ $name:ident: $check:ident, $expected:literal) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// A description of valid text, for messages.
            pub(crate) const EXPECTED: &'static str = $expected;

            /// Parses text that a person typed, a file contains or a program printed.
            pub fn parse(text: &str) -> Result<Self, $crate::id::NameError> {
                if $check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err($crate::id::NameError { text: text.to_owned(), expected: Self::EXPECTED })
                }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::id::NameError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}
pub(crate) use checked_text;

checked_text! {
    /// The id of a run, for example `r7k2m9xq4`. Safe as a file name, a ref component and a label.
    RunId: is_run_id,
    "a run id: expected `r` and 4 to 31 lower-case letters or digits, as `ralph status` lists them"
}

checked_text! {
    /// A full git object id: 40 (SHA-1) or 64 (SHA-256) lower-case hex digits.
    ObjectId: is_object_id,
    "a git object id"
}

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
}

impl FromStr for RunId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl ObjectId {
    /// The first ten digits, for people.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..10]
    }
}

fn is_run_id(text: &str) -> bool {
    (5..=32).contains(&text.len())
        && text.starts_with('r')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

fn is_object_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

checked_text! {
    /// A repository on GitHub, for example `rust-lang/cargo`. GitHub ignores case.
    RepositoryName: is_repository_name,
    "a GitHub repository: expected `owner/name`"
}

impl RepositoryName {
    /// Whether it has this owner and name.
    #[must_use]
    pub fn is(&self, owner: &str, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(&format!("{owner}/{name}"))
    }
}

fn is_repository_name(text: &str) -> bool {
    let of_owner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let of_name = |b: u8| of_owner(b) || b == b'_' || b == b'.';
    text.split_once('/').is_some_and(|(owner, name)| {
        (1..=39).contains(&owner.len())
            && (1..=100).contains(&name.len())
            && owner.bytes().all(of_owner)
            && name.bytes().all(of_name)
            && ![".", ".."].contains(&name)
            && !name.to_ascii_lowercase().ends_with(".git")
    })
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
        assert_eq!(ObjectId::parse(&sha).unwrap().as_str(), sha);
        let with_line_break = format!("{sha}\n");
        for bad in [
            "",
            "abc",
            &"A".repeat(40),
            &"g".repeat(40),
            "HEAD",
            &with_line_break,
        ] {
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
