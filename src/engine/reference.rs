//! References to images.

use std::fmt;

use thiserror::Error;

/// The name of an image with its tag or digest: `debian:bookworm`, `ghcr.io/a/b:1`, `a/b@sha256:…`. The default tag is
/// `latest`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineImageReference {
    repository: String,
    version: Version,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Version {
    Tag(String),
    Digest(String),
}

/// A text that is not an image reference.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid image reference `{0}`: expected `name:tag` with a lower-case name")]
pub struct EngineImageReferenceError(String);

/// The registry of names without one.
const DEFAULT_REGISTRY: &str = "docker.io";

impl EngineImageReference {
    /// Parses a reference.
    pub fn parse(text: &str) -> Result<Self, EngineImageReferenceError> {
        let (repository, version) = if let Some((repository, digest)) = text.split_once('@') {
            (split_tag(repository).0, Version::Digest(digest.to_owned()))
        } else {
            let (repository, tag) = split_tag(text);
            (repository, Version::Tag(tag.unwrap_or("latest").to_owned()))
        };
        if is_repository(repository) && is_version(&version) {
            let repository = repository.to_owned();
            Ok(Self { repository, version })
        } else {
            Err(EngineImageReferenceError(text.to_owned()))
        }
    }

    /// The name without tag or digest.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag; `None` when the reference has a digest.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        match &self.version {
            Version::Tag(tag) => Some(tag),
            Version::Digest(_) => None,
        }
    }

    /// The registry of the image.
    #[must_use]
    pub fn registry(&self) -> &str {
        let is_host = |first: &str| first == "localhost" || first.contains(['.', ':']);
        match self.repository.split_once('/') {
            Some((first, _)) if is_host(first) => first,
            _ => DEFAULT_REGISTRY,
        }
    }
}

impl fmt::Display for EngineImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Version::Tag(tag) => write!(f, "{}:{tag}", self.repository),
            Version::Digest(digest) => write!(f, "{}@{digest}", self.repository),
        }
    }
}

/// Splits off the tag. A colon before the last slash belongs to the port of the registry.
fn split_tag(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (text, None),
    }
}

fn is_repository(name: &str) -> bool {
    let starts = |part: &str| part.starts_with(|c: char| c.is_ascii_alphanumeric());
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/:".contains(c);
    let is_host = |c: char| allowed(c) || c.is_ascii_uppercase();
    let (host, path) = name.split_once('/').unwrap_or(("", name));
    name.len() <= 255
        && name.split('/').all(starts)
        && path.chars().all(allowed)
        && !path.contains(':')
        && host.chars().all(is_host)
}

fn is_version(version: &Version) -> bool {
    match version {
        Version::Tag(tag) => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            (1..=128).contains(&tag.len()) && !tag.starts_with(['.', '-']) && tag.chars().all(allowed)
        }
        Version::Digest(digest) => digest.starts_with("sha256:") && super::Digest::parse(digest).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::name_alone("debian", "debian:latest", "docker.io")]
    #[case::tag("debian:bookworm", "debian:bookworm", "docker.io")]
    #[case::organisation(
        "docker/sandbox-templates:claude-code",
        "docker/sandbox-templates:claude-code",
        "docker.io"
    )]
    #[case::registry("ghcr.io/a/b:V1", "ghcr.io/a/b:V1", "ghcr.io")]
    #[case::port("localhost:5000/a", "localhost:5000/a:latest", "localhost:5000")]
    fn a_reference_is_parsed(#[case] text: &str, #[case] whole: &str, #[case] registry: &str) {
        let reference = EngineImageReference::parse(text).unwrap();
        assert_eq!(
            (reference.to_string().as_str(), reference.registry()),
            (whole, registry)
        );
    }

    #[test]
    fn a_digest_replaces_the_tag() {
        let text = format!("a/b@sha256:{}", "0".repeat(64));
        let reference = EngineImageReference::parse(&text).unwrap();
        assert_eq!((reference.to_string(), reference.tag()), (text, None));
    }

    #[rstest]
    #[case::empty("")]
    #[case::spaces("a b")]
    #[case::upper_case("My/App")]
    #[case::an_option("-v")]
    #[case::empty_tag("a:")]
    #[case::bad_digest("a@sha256:12")]
    #[case::empty_part("a//b")]
    #[case::dots("../a")]
    fn an_invalid_reference_is_an_error(#[case] text: &str) {
        assert_eq!(
            EngineImageReference::parse(text),
            Err(EngineImageReferenceError(text.to_owned()))
        );
    }
}
