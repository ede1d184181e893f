//! SHA-256 digests, and how several texts become one.

use std::fmt;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// A text that is no SHA-256 digest.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a SHA-256 digest: expected 64 lower-case hex digits")]
pub struct DigestError(String);

impl Digest {
    /// How many digits a tag shows.
    pub(super) const SHORT: usize = 8;

    /// Wraps the bytes of a digest.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads 64 lower-case hex digits.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let wrong = || DigestError(text.to_owned());
        let digits: &[u8; 64] = text.as_bytes().try_into().map_err(|_| wrong())?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (high, low) = (nibble(pair[0]), nibble(pair[1]));
            *byte = high
                .zip(low)
                .map(|(high, low)| high << 4 | low)
                .ok_or_else(wrong)?;
        }
        Ok(Self(bytes))
    }

    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of a row of fields. Each is hashed as its length in eight bytes, the highest first, and its bytes, so
    /// that no two rows look alike.
    pub fn of_fields<F: AsRef<[u8]>>(fields: impl IntoIterator<Item = F>) -> Self {
        let mut hasher = Sha256::new();
        for field in fields {
            let field = field.as_ref();
            hasher.update((field.len() as u64).to_be_bytes());
            hasher.update(field);
        }
        Self(hasher.finalize().into())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first eight hex digits, as they stand in a tag.
    #[must_use]
    pub fn short(&self) -> String {
        let [a, b, c, d, ..] = self.0;
        format!("{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_sha256sum_and_can_be_read_back() {
        let digest = Digest::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(digest.short(), "ba7816bf");
        assert_eq!(Digest::parse(text), Ok(digest));
        for bad in [
            "",
            "ba78",
            &text.to_uppercase(),
            &text.replace('a', "g"),
            &"ä".repeat(32),
        ] {
            assert!(Digest::parse(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn where_a_field_ends_counts() {
        assert_ne!(Digest::of_fields(["ab", "c"]), Digest::of_fields(["a", "bc"]));
        assert_ne!(Digest::of_fields(["ab"]), Digest::of_fields(["ab", ""]));
    }
}
