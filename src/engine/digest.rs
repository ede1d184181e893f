//! Content addresses.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// The SHA-256 of something, as images spell it: `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is no digest.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a digest: expected `sha256:` and 64 lower-case hex digits")]
pub struct DigestError(String);

const PREFIX: &str = "sha256:";

impl Digest {
    /// Reads a digest; podman leaves the `sha256:` out in places.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let hex = text.strip_prefix(PREFIX).unwrap_or(text);
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() == 64 && hex.bytes().all(is_hex) {
            Ok(Self(format!("{PREFIX}{hex}")))
        } else {
            Err(DigestError(text.to_owned()))
        }
    }

    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    /// The digest of everything this hasher was given.
    #[must_use]
    pub fn finish(hasher: Sha256) -> Self {
        Self(format!("{PREFIX}{:x}", hasher.finalize()))
    }

    /// With its `sha256:`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 64 hex digits alone.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_with_and_without_its_prefix() {
        let digest = Digest::of(b"abc");
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.hex(), hex);
        assert_eq!(Digest::parse(hex), Ok(digest.clone()));
        assert_eq!(Digest::parse(digest.as_str()), Ok(digest));
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        for bad in [
            "",
            "sha256:",
            "sha512:00",
            &"A".repeat(64),
            &"../".repeat(22)[..64],
        ] {
            assert!(Digest::parse(bad).is_err(), "{bad:?} was taken");
        }
    }
}
