//! What an engine has, as far as a plan depends on it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::reference::ImageReference;
use crate::digest::Digest;

/// What an engine has, as far as a plan depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// No engine answers. A plan can be shown but not run.
    NoEngine,
    /// The images of an engine.
    Engine {
        /// The images that ralph built.
        images: Vec<TaggedImage>,
        /// The image that the base is built from, if the engine has it. A Nix image needs none.
        base: Option<BaseImage>,
    },
}

/// An image under one of its tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaggedImage {
    /// The tag, without the host that some engines put before it.
    pub tag: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The diff ids of its layers, lowest first.
    pub layers: Vec<String>,
    /// The platform that it is for (`linux/arm64`), if it is known.
    pub platform: Option<String>,
}

/// The image that a base is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseImage {
    /// Identifies its content.
    pub identity: BaseIdentity,
    /// When it was pulled.
    pub pulls: PullHistory,
    /// The platform that it is for (`linux/arm64`), if it is known.
    pub platform: Option<String>,
}

/// When ralph pulled an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullHistory {
    /// Just now, successfully or not.
    JustTried,
    /// Some time ago.
    Earlier {
        /// The age of the last successful pull; `None`: ralph never pulled it.
        succeeded: Option<Duration>,
        /// The age of the last failed pull, if none succeeded since.
        failed: Option<Duration>,
    },
}

/// Identifies the content that an image reference currently stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseIdentity {
    /// The digest in the registry that its name stands for, such as `sha256:1f2e…`.
    RepoDigest(String),
    /// The digest over its layers, because it does not come from that registry.
    Layers(Digest),
    /// Unknown until it is pulled.
    Unresolved,
}

impl BaseIdentity {
    /// Identifies an image by its repository digests (`name@sha256:…`) and its diff ids.
    ///
    /// Only the digest of the reference's own repository counts: an image gets further ones when it is pushed under other
    /// names, and stays what it is.
    #[must_use]
    pub fn new(reference: &ImageReference, repo_digests: &[String], diff_ids: &[String]) -> Self {
        let wanted = short_repository(reference.repository());
        let mut digests: Vec<&str> = repo_digests
            .iter()
            .filter_map(|name| name.split_once('@'))
            .filter(|(repository, _)| short_repository(repository) == wanted)
            .map(|(_, digest)| digest)
            .collect();
        digests.sort_unstable();
        match digests.first() {
            Some(digest) => Self::RepoDigest((*digest).to_owned()),
            None => Self::Layers(Digest::sha256_fields(diff_ids)),
        }
    }
}

impl fmt::Display for BaseIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RepoDigest(digest) => f.write_str(digest),
            Self::Layers(digest) => write!(f, "layers:{}", digest.hex()),
            Self::Unresolved => f.write_str("unresolved"),
        }
    }
}

impl Serialize for BaseIdentity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A repository without Docker Hub's host and `library` folder.
fn short_repository(repository: &str) -> &str {
    let name = repository.strip_prefix("docker.io/").unwrap_or(repository);
    name.strip_prefix("library/").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LAYERS: &str = "layers:1019c68dc3720ea7a70cc64bdfb7970bcdbe116ffc3c09539f12c8c157fa3857";

    #[rstest]
    #[case::its_own_repository(&["aaa/mirror@sha256:11", "docker.io/library/debian@sha256:22"], "sha256:22")]
    #[case::pushed_under_another_name(&["mirror@sha256:33"], LAYERS)]
    #[case::no_digest(&[], LAYERS)]
    fn an_image_is_identified_by_its_digest_or_else_by_its_layers(
        #[case] digests: &[&str],
        #[case] expected: &str,
    ) {
        let reference = ImageReference::parse("debian:12").unwrap();
        let digests: Vec<String> = digests.iter().map(|digest| (*digest).to_owned()).collect();
        let identity = BaseIdentity::new(&reference, &digests, &["sha256:aa".into(), "sha256:bb".into()]);
        assert_eq!(identity.to_string(), expected);
    }
}
