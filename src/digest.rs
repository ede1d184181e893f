//! SHA-256 digests, as images, caches and content hashes use them.

use std::fmt;
use std::io::{self, Read};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// A SHA-256 digest. Written as OCI images write it: `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Text that is not a SHA-256 digest.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a digest: expected `sha256:` and 64 lower-case hex digits")]
pub struct DigestError(String);

const PREFIX: &str = "sha256:";

impl Digest {
    /// Reads a digest, with or without `sha256:`. Podman omits the prefix in places.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let invalid = || DigestError(text.to_owned());
        let hex = text.strip_prefix(PREFIX).unwrap_or(text).as_bytes();
        if hex.len() != 64 {
            return Err(invalid());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let digits = hex_digit(pair[0]).zip(hex_digit(pair[1]));
            let (high, low) = digits.ok_or_else(invalid)?;
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }

    /// Hashes these bytes.
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Hashes a list of fields. Each field is preceded by its length as eight bytes, big-endian, so that two different
    /// lists never hash the same input.
    pub fn sha256_fields<F: AsRef<[u8]>>(fields: impl IntoIterator<Item = F>) -> Self {
        let mut hasher = Sha256::new();
        for field in fields {
            let field = field.as_ref();
            hasher.update((field.len() as u64).to_be_bytes());
            hasher.update(field);
        }
        Self::from_hasher(hasher)
    }

    /// The digest of everything this hasher has consumed.
    #[must_use]
    pub fn from_hasher(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// Wraps the bytes of a digest.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hex digits without `sha256:`.
    #[must_use]
    pub fn hex(&self) -> String {
        hex(&self.0)
    }

    /// The first eight hex digits, as image tags show them.
    #[must_use]
    pub fn short(&self) -> String {
        hex(&self.0[..4])
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits
        .filter_map(|digit| char::from_digit(u32::from(digit), 16))
        .collect()
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
        digest.to_string()
    }
}

/// Hashes the bytes that are read through it.
pub(crate) struct HashingReader<R> {
    from: R,
    hasher: Sha256,
}

impl<R: Read> HashingReader<R> {
    pub(crate) fn new(from: R) -> Self {
        let hasher = Sha256::new();
        Self { from, hasher }
    }

    /// Reads to the end, and returns the digest of everything that was read.
    pub(crate) fn finish(mut self) -> io::Result<Digest> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(Digest::from_hasher(self.hasher))
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_digest_is_that_of_sha256sum_and_parses_with_and_without_its_prefix() {
        let digest = Digest::sha256(b"abc");
        assert_eq!(
            (digest.hex().as_str(), digest.short().as_str()),
            (ABC, "ba7816bf")
        );
        assert_eq!(Digest::parse(ABC), Ok(digest));
        assert_eq!(Digest::parse(&digest.to_string()), Ok(digest));
    }

    #[test]
    fn other_text_is_rejected() {
        for bad in [
            "",
            "sha256:",
            "sha512:00",
            "ba78",
            &ABC.to_uppercase(),
            &ABC.replace('a', "g"),
            &"ä".repeat(32),
            &"../".repeat(22)[..64],
        ] {
            assert!(Digest::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn field_boundaries_change_the_digest() {
        assert_ne!(
            Digest::sha256_fields(["ab", "c"]),
            Digest::sha256_fields(["a", "bc"])
        );
        assert_ne!(Digest::sha256_fields(["ab"]), Digest::sha256_fields(["ab", ""]));
    }

    #[test]
    fn a_reader_hashes_all_bytes_including_those_not_read() {
        let mut reader = HashingReader::new(&b"abc"[..]);
        reader.read_exact(&mut [0; 1]).unwrap();
        assert_eq!(reader.finish().unwrap().hex(), ABC);
    }
}
