//! The name of somebody else's image.

use std::fmt;
use std::sync::LazyLock;

use regex_lite::Regex;
use serde::Serialize;
use thiserror::Error;

use crate::agent::AgentImage;

/// An image that a base is built from, such as `docker/sandbox-templates:claude-code` or `debian@sha256:…`.
///
/// Holds nothing but what may stand behind `FROM` as one word.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct ImageReference(String);

/// A text that names no image.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{}` names no image: expected something like `debian:bookworm-slim`", .0.escape_debug())]
pub struct ReferenceError(String);

impl ImageReference {
    /// Reads `[host[:port]/]name[:tag][@digest]`.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(GRAMMAR).ok());
        let is_reference = PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(text));
        if is_reference && text.len() <= LONGEST {
            Ok(Self(text.to_owned()))
        } else {
            Err(ReferenceError(text.to_owned()))
        }
    }

    /// The image that an agent's own base is built from, unless the configuration names another.
    #[must_use]
    pub fn default_base(agent: AgentImage) -> Self {
        Self(agent.base.to_owned())
    }

    /// The reference as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it names one image for ever, by its digest.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.0.contains('@')
    }

    /// Its name without tag and digest.
    #[must_use]
    pub fn repository(&self) -> &str {
        let name = self.0.split('@').next().unwrap_or(&self.0);
        match name.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => repository,
            _ => name,
        }
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const LONGEST: usize = 400;

/// The grammar of the distribution specification.
const GRAMMAR: &str = concat!(
    r"^([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?",
    r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*",
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha(256:[0-9a-f]{64}|512:[0-9a-f]{128}))?$",
);

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::agent::AGENTS;

    #[rstest]
    #[case("debian", "debian")]
    #[case("docker/sandbox-templates:claude-code", "docker/sandbox-templates")]
    #[case("registry.example:5000/team/base", "registry.example:5000/team/base")]
    #[case("localhost:5000/base:v1", "localhost:5000/base")]
    #[case(&format!("debian:12@sha256:{}", "a".repeat(64)), "debian")]
    fn a_reference_is_read(#[case] text: &str, #[case] repository: &str) {
        let reference = ImageReference::parse(text).unwrap();
        assert_eq!((reference.as_str(), reference.repository()), (text, repository));
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
    fn what_is_not_one_word_behind_from_is_refused(#[case] text: &str) {
        assert!(ImageReference::parse(text).is_err(), "{text:?} was taken");
    }

    #[test]
    fn every_default_is_a_reference() {
        for agent in AGENTS {
            let base = ImageReference::default_base(agent.image);
            assert_eq!(ImageReference::parse(base.as_str()), Ok(base));
        }
    }
}
