//! References to images that ralph did not build.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::engine::{EngineImageReference, EngineImageReferenceError};

/// An image that a base is built from, such as `docker/sandbox-templates:claude-code` or `debian@sha256:…`. Keeps the
/// user's spelling, which is hashed and written after `FROM`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageReference {
    text: String,
    parsed: EngineImageReference,
}

impl ImageReference {
    /// Parses `[host[:port]/]name[:tag][@digest]`.
    pub fn parse(text: &str) -> Result<Self, EngineImageReferenceError> {
        Ok(Self {
            parsed: EngineImageReference::parse(text)?,
            text: text.to_owned(),
        })
    }

    /// The reference as the user wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The reference as engines take it.
    #[must_use]
    pub fn as_engine_reference(&self) -> &EngineImageReference {
        &self.parsed
    }

    /// Whether it names a digest, and so never changes.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.parsed.tag().is_none()
    }

    /// The name without tag and digest.
    #[must_use]
    pub fn repository(&self) -> &str {
        self.parsed.repository()
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for ImageReference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("debian", "debian")]
    #[case("docker/sandbox-templates:claude-code", "docker/sandbox-templates")]
    #[case("registry.example:5000/team/base", "registry.example:5000/team/base")]
    #[case("localhost:5000/base:v1", "localhost:5000/base")]
    #[case(&format!("debian:12@sha256:{}", "a".repeat(64)), "debian")]
    fn a_reference_keeps_its_spelling(#[case] text: &str, #[case] repository: &str) {
        let reference = ImageReference::parse(text).unwrap();
        assert_eq!((reference.as_str(), reference.repository()), (text, repository));
        assert_eq!(reference.is_pinned(), text.contains('@'));
    }

    #[rstest]
    #[case("")]
    #[case("Debian")]
    #[case("debian:")]
    #[case("debian 12")]
    #[case("debian\nRUN reboot")]
    #[case("debian\n")]
    #[case("${BASE}")]
    #[case("debian AS x")]
    #[case("debian@sha256:abc")]
    fn text_that_is_not_one_word_after_from_is_rejected(#[case] text: &str) {
        assert!(ImageReference::parse(text).is_err(), "{text:?} was accepted");
    }

    #[test]
    fn the_default_base_is_valid() {
        assert!(ImageReference::parse(crate::image::DEFAULT_BASE).is_ok());
    }
}
