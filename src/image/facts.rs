//! What a plan is made from besides the wish: the state of the engine.

use std::fmt;
use std::time::Duration;

use super::labels::Labels;
use super::reference::ImageReference;
use crate::digest::Digest;

/// What is known of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// No engine answers. A plan can be shown, not carried out.
    NoEngine,
    /// What the engine has.
    Engine {
        /// The images under our tags.
        images: Vec<OwnImage>,
        /// The image that a base is built from, if the engine has it. A Nix image needs none.
        base: Option<BaseImage>,
    },
}

/// An image under one of our tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnImage {
    /// Its tag, without the host that some engines put before it.
    pub tag: String,
    /// Its labels.
    pub labels: Labels,
    /// The diff ids of its layers, the lowest first.
    pub layers: Vec<String>,
}

/// The image that a base is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseImage {
    /// Which one it is.
    pub identity: BaseIdentity,
    /// When it was pulled.
    pub pulls: Pulls,
}

/// When ralph pulled an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulls {
    /// A moment ago, or it tried: as the plan before this one said.
    JustTried,
    /// Some time ago.
    Earlier {
        /// How long ago the last pull was; `None`: ralph never pulled it.
        succeeded: Option<Duration>,
        /// How long ago the last pull failed, if none succeeded since.
        failed: Option<Duration>,
    },
}

/// Which image a reference stands for at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseIdentity {
    /// The digest by which a registry knows it, such as `sha256:1f2e…`.
    RepoDigest(String),
    /// It comes from no registry: the digest over its layers.
    Layers(Digest),
    /// Nobody can tell before it is pulled.
    Unresolved,
}

impl BaseIdentity {
    /// Identifies an image by what an engine says of it: its repository digests (`name@sha256:…`) and its diff ids.
    ///
    /// Of several digests the one of the reference's own repository counts, so that all machines take the same.
    #[must_use]
    pub fn of(reference: &ImageReference, repo_digests: &[String], diff_ids: &[String]) -> Self {
        let wanted = familiar(reference.repository());
        let mut digests: Vec<(bool, &str)> = repo_digests
            .iter()
            .filter_map(|name| name.split_once('@'))
            .map(|(repository, digest)| (familiar(repository) != wanted, digest))
            .collect();
        digests.sort_unstable();
        match digests.first() {
            Some((_, digest)) => Self::RepoDigest((*digest).to_owned()),
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

/// A repository as people write it: without the host and the folder that go without saying.
fn familiar(repository: &str) -> &str {
    let name = repository.strip_prefix("docker.io/").unwrap_or(repository);
    name.strip_prefix("library/").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::its_own_repository(&["aaa/mirror@sha256:11", "docker.io/library/debian@sha256:22"], "sha256:22")]
    #[case::another_repository(&["mirror@sha256:33", "copy@sha256:11"], "sha256:11")]
    #[case::no_digest(&[], "layers:1019c68dc3720ea7a70cc64bdfb7970bcdbe116ffc3c09539f12c8c157fa3857")]
    fn an_image_is_known_by_its_digest_or_else_by_its_layers(
        #[case] digests: &[&str],
        #[case] expected: &str,
    ) {
        let reference = ImageReference::parse("debian:12").unwrap();
        let digests: Vec<String> = digests.iter().map(|digest| (*digest).to_owned()).collect();
        let identity = BaseIdentity::of(&reference, &digests, &["sha256:aa".into(), "sha256:bb".into()]);
        assert_eq!(identity.to_string(), expected);
    }
}
