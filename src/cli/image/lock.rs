//! `ralph.lock`: which image a project's files gave, so that a later build can be compared with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::atomic_file::{FileAccess, write_durably};
use crate::engine::Digest;
use crate::image::{Fingerprint, ImageTag, PlannedBase, PlannedImage, Platform};

use super::super::error::{self, CliError};

/// The form of the file.
const VERSION: u32 = 1;

const HEADER: &str = "\
# Which image this project's files gave. Written by `ralph image build --lock`, compared by `ralph image build --check`.
";

/// What is recorded, by name and platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lock {
    version: u32,
    #[serde(rename = "image", default)]
    images: Vec<Locked>,
}

/// An image that was built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Locked {
    tag: String,
    platform: String,
    hash: String,
    /// See [`Fingerprint::digest`].
    pub(super) digest: Digest,
    layers: Vec<Digest>,
    base: Option<LockedBase>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedBase {
    reference: String,
    identity: String,
}

impl Lock {
    pub(super) fn path_in(project: &Path) -> PathBuf {
        project.join("ralph.lock")
    }

    /// What is recorded of a project's images; `None`: nothing is.
    pub(super) fn of_project(project: &Path) -> Result<Option<Self>, CliError> {
        Self::read(&Self::path_in(project))
    }

    fn read(path: &Path) -> Result<Option<Self>, CliError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error::io("read", path)(error)),
        };
        let unusable = |reason: String| {
            CliError::usage(format!("`{}` cannot be used: {reason}", path.display()))
                .with_hint("`ralph image build --lock` writes it anew once it is deleted")
        };
        let lock: Self = toml::from_str(&text).map_err(|error| unusable(error.to_string()))?;
        if lock.version != VERSION {
            return Err(unusable(format!(
                "its version is {}, not {VERSION}",
                lock.version
            )));
        }
        Ok(Some(lock))
    }

    /// What is recorded of this very image.
    pub(super) fn of(&self, image: &PlannedImage, platform: Platform) -> Option<&Locked> {
        let recorded = self.named(&image.tag, platform);
        recorded.filter(|locked| locked.hash == image.hash.hex())
    }

    /// What is recorded of the image of this name, whatever it is made from.
    pub(super) fn named(&self, tag: &ImageTag, platform: Platform) -> Option<&Locked> {
        let key = (tag.repository(), platform.name());
        self.images.iter().find(|image| image.key() == key)
    }

    /// Records an image, in place of an earlier one of its name and platform. Keeps what is recorded of others.
    pub(super) fn record(path: &Path, image: Locked) -> Result<(), CliError> {
        let mut lock = Self::read(path)?.unwrap_or(Self {
            version: VERSION,
            images: Vec::new(),
        });
        lock.images.retain(|other| other.key() != image.key());
        lock.images.push(image);
        lock.images.sort_by(|a, b| a.key().cmp(&b.key()));
        let text = toml::to_string_pretty(&lock)
            .map_err(|error| CliError::runtime(format!("cannot write `{}`: {error}", path.display())))?;
        let text = format!("{HEADER}{text}");
        write_durably(path, text.as_bytes(), FileAccess::Default).map_err(error::io("write", path))
    }
}

impl Locked {
    /// An image of a plan that gave this.
    pub(super) fn new(image: &PlannedImage, base: Option<&PlannedBase>, made: Made<'_>) -> Self {
        Self {
            tag: image.tag.to_string(),
            platform: made.platform.name().to_owned(),
            hash: image.hash.hex(),
            digest: made.fingerprint.digest(),
            layers: made.fingerprint.layers().to_vec(),
            base: base.map(|base| LockedBase {
                reference: base.reference.to_string(),
                identity: base.identity.to_string(),
            }),
        }
    }

    /// In what an image differs from what is recorded.
    pub(super) fn differences(&self, now: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.hash != now.hash {
            found.push(format!(
                "it is made from other files: {} is recorded, {} is planned",
                self.tag, now.tag
            ));
        }
        if self.base != now.base {
            found.push(format!(
                "it stands on another base: {} is recorded, now it is {}",
                shown(self.base.as_ref()),
                shown(now.base.as_ref())
            ));
        }
        if self.digest != now.digest {
            found.extend(self.layer_differences(now));
        }
        found
    }

    fn layer_differences(&self, now: &Self) -> Vec<String> {
        let (before, after) = (self.layers.len(), now.layers.len());
        let count = (before != after).then(|| format!("{before} layers are recorded, it has {after}"));
        let pairs = self.layers.iter().zip(&now.layers).zip(1..);
        let layers = pairs.filter(|((before, after), _)| before != after);
        let layers = layers.map(|((before, after), number)| {
            format!("layer {number} is another: {before} is recorded, it is {after}")
        });
        let mut found: Vec<String> = count.into_iter().chain(layers).collect();
        if found.is_empty() {
            found.push("what a container of it starts with, or a label, is another".to_owned());
        }
        found
    }

    fn key(&self) -> (&str, &str) {
        let repository = self.tag.split(':').next().unwrap_or_default();
        (repository, &self.platform)
    }
}

/// What came of a build.
#[derive(Clone, Copy)]
pub(super) struct Made<'a> {
    pub(super) platform: Platform,
    pub(super) fingerprint: &'a Fingerprint,
}

fn shown(base: Option<&LockedBase>) -> String {
    match base {
        Some(base) => format!("{} ({})", base.reference, base.identity),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const TAG: &str = "agent-loop-sandbox-claude-app:v00000001";

    fn digest(of: &str) -> Digest {
        Digest::sha256(of.as_bytes())
    }

    fn locked(tag: &str, platform: &str) -> Locked {
        Locked {
            tag: tag.to_owned(),
            platform: platform.to_owned(),
            hash: format!("hash of {tag}"),
            digest: digest("image"),
            layers: vec![digest("first"), digest("second")],
            base: Some(LockedBase {
                reference: "debian:12".to_owned(),
                identity: "sha256:1".to_owned(),
            }),
        }
    }

    fn recorded(path: &Path) -> Vec<(String, String)> {
        let lock = Lock::read(path).unwrap().unwrap();
        let row = |image: Locked| (image.tag, image.platform);
        lock.images.into_iter().map(row).collect()
    }

    #[test]
    fn what_is_recorded_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = Lock::path_in(dir.path());
        assert_eq!(Lock::of_project(dir.path()).unwrap(), None);
        let image = Locked {
            base: None,
            ..locked(TAG, "linux/amd64")
        };
        Lock::record(&path, image.clone()).unwrap();
        assert_eq!(Lock::of_project(dir.path()).unwrap().unwrap().images, [image]);
        assert!(fs::read_to_string(&path).unwrap().starts_with("# "));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// So that two people who record different images change different lines.
    #[test]
    fn an_image_replaces_its_own_earlier_record_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = Lock::path_in(dir.path());
        let (old, new) = (
            "agent-loop-sandbox-codex:v00000001",
            "agent-loop-sandbox-codex:v00000002",
        );
        for (tag, platform) in [
            (old, "linux/arm64"),
            (old, "linux/amd64"),
            (TAG, "linux/amd64"),
            (new, "linux/amd64"),
        ] {
            Lock::record(&path, locked(tag, platform)).unwrap();
        }
        let expected = [(TAG, "linux/amd64"), (new, "linux/amd64"), (old, "linux/arm64")];
        assert_eq!(
            recorded(&path),
            expected.map(|(tag, platform)| (tag.to_owned(), platform.to_owned()))
        );
    }

    #[rstest]
    #[case::another_version("version = 2\n", "its version is 2, not 1")]
    #[case::no_version("", "missing field `version`")]
    #[case::no_toml("<<<<<<< ours\n", "line 1")]
    #[case::something_newer("version = 1\nsigned = true\n", "unknown field `signed`")]
    fn a_file_that_cannot_be_used_is_refused_and_kept(#[case] text: &str, #[case] said: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = Lock::path_in(dir.path());
        fs::write(&path, text).unwrap();
        for error in [
            Lock::of_project(dir.path()).unwrap_err(),
            Lock::record(&path, locked(TAG, "linux/amd64")).unwrap_err(),
        ] {
            assert!(error.to_string().contains(said), "{error}");
            assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
            assert!(error.hint().is_some());
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[rstest]
    #[case::nothing(|_: &mut Locked| {}, &[])]
    #[case::files(|now: &mut Locked| now.hash.push('2'), &["it is made from other files"])]
    #[case::base(|now: &mut Locked| now.base = None, &["it stands on another base: debian:12 (sha256:1) is recorded, now it is nothing"])]
    #[case::a_layer(
        |now: &mut Locked| { now.digest = digest("other"); now.layers[1] = digest("changed") },
        &["layer 2 is another"]
    )]
    #[case::a_layer_more(
        |now: &mut Locked| { now.digest = digest("other"); now.layers.push(digest("third")) },
        &["2 layers are recorded, it has 3"]
    )]
    #[case::settings_alone(|now: &mut Locked| now.digest = digest("other"), &["or a label, is another"])]
    fn what_differs_from_the_record_is_named(#[case] change: fn(&mut Locked), #[case] expected: &[&str]) {
        let before = locked(TAG, "linux/amd64");
        let mut now = before.clone();
        change(&mut now);
        let found = before.differences(&now);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }
}
