//! `ralph.lock`: the image that a project's files gave, so that a later build can be compared with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::ImageError;
use super::fingerprint::ImageFingerprint;
use super::plan::{PlannedBase, PlannedImage};
use super::platform::Platform;
use super::tag::ImageTag;
use crate::atomic_file::{FileAccess, write_durably};
use crate::digest::Digest;
use crate::text::counted;

/// The version of the file format.
const VERSION: u32 = 1;

const HEADER: &str = "\
# Which image this project's files gave. Written by `ralph image build --lock`, compared by `ralph image build --check`.
";

/// The recorded images of a project, by repository and platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageLock {
    version: u32,
    #[serde(rename = "image", default)]
    images: Vec<LockedImage>,
}

/// A recorded image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedImage {
    tag: String,
    platform: String,
    hash: String,
    /// See [`ImageFingerprint::digest`].
    pub digest: Digest,
    layers: Vec<Digest>,
    base: Option<LockedBase>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedBase {
    reference: String,
    identity: String,
}

impl ImageLock {
    /// Where the lock of a project is.
    #[must_use]
    pub fn path_in(project: &Path) -> PathBuf {
        project.join("ralph.lock")
    }

    /// Reads the lock of a project; `None` if the file does not exist.
    pub fn read(project: &Path) -> Result<Option<Self>, ImageError> {
        let path = Self::path_in(project);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ImageError::io("read", &path)(error)),
        };
        let invalid = |reason: String| {
            ImageError::invalid(format!("`{}` is not valid: {reason}", path.display()))
                .with_hint("delete the file and record the image again")
        };
        let lock: Self = toml::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        if lock.version != VERSION {
            return Err(invalid(format!(
                "its version is {}, expected {VERSION}",
                lock.version
            )));
        }
        Ok(Some(lock))
    }

    /// The record of exactly this image.
    #[must_use]
    pub fn find(&self, image: &PlannedImage, platform: Platform) -> Option<&LockedImage> {
        let recorded = self.find_repository(&image.tag, platform);
        recorded.filter(|locked| locked.hash == image.hash.hex())
    }

    /// The record of the image of this repository, whatever its content.
    #[must_use]
    pub fn find_repository(&self, tag: &ImageTag, platform: Platform) -> Option<&LockedImage> {
        let key = (tag.repository(), platform.name());
        self.images.iter().find(|image| image.key() == key)
    }

    /// Records an image in a project's lock, in place of an earlier one of its repository and platform.
    pub fn record(project: &Path, image: LockedImage) -> Result<(), ImageError> {
        let mut lock = Self::read(project)?.unwrap_or(Self {
            version: VERSION,
            images: Vec::new(),
        });
        lock.images.retain(|other| other.key() != image.key());
        lock.images.push(image);
        lock.images.sort_by(|a, b| a.key().cmp(&b.key()));
        let path = Self::path_in(project);
        let text = toml::to_string_pretty(&lock);
        let text = text.map_err(|error| ImageError::io("write", &path)(io::Error::other(error)))?;
        let text = format!("{HEADER}{text}");
        write_durably(&path, text.as_bytes(), FileAccess::Default).map_err(ImageError::io("write", &path))
    }
}

impl LockedImage {
    /// The record of a planned image and the result of its build.
    #[must_use]
    pub fn new(
        image: &PlannedImage,
        base: Option<&PlannedBase>,
        platform: Platform,
        built: &ImageFingerprint,
    ) -> Self {
        Self {
            tag: image.tag.to_string(),
            platform: platform.name().to_owned(),
            hash: image.hash.hex(),
            digest: built.digest(),
            layers: built.layers().to_vec(),
            base: base.map(|base| LockedBase {
                reference: base.reference.to_string(),
                identity: base.identity.to_string(),
            }),
        }
    }

    /// How an image differs from this record, one line per difference.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.hash != now.hash {
            found.push(format!(
                "its inputs changed: {} is recorded, {} is planned",
                self.tag, now.tag
            ));
        }
        if self.base != now.base {
            found.push(format!(
                "its base changed from {} to {}",
                base_text(self.base.as_ref()),
                base_text(now.base.as_ref())
            ));
        }
        if self.digest != now.digest {
            found.extend(self.layer_differences(now));
        }
        found
    }

    fn layer_differences(&self, now: &Self) -> Vec<String> {
        let (before, after) = (self.layers.len(), now.layers.len());
        let count =
            (before != after).then(|| format!("recorded: {}, it has {after}", counted(before, "layer")));
        let pairs = self.layers.iter().zip(&now.layers).zip(1..);
        let layers = pairs.filter(|((before, after), _)| before != after);
        let layers = layers.map(|((before, after), number)| {
            format!("layer {number} differs: {before} is recorded, it is {after}")
        });
        let mut found: Vec<String> = count.into_iter().chain(layers).collect();
        if found.is_empty() {
            found.push("a setting or a label differs".to_owned());
        }
        found
    }

    fn key(&self) -> (&str, &str) {
        let repository = self.tag.split(':').next().unwrap_or_default();
        (repository, &self.platform)
    }
}

fn base_text(base: Option<&LockedBase>) -> String {
    match base {
        Some(base) => format!("{} ({})", base.reference, base.identity),
        None => "none".to_owned(),
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

    fn locked(tag: &str, platform: &str) -> LockedImage {
        LockedImage {
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

    fn recorded(project: &Path) -> Vec<(String, String)> {
        let lock = ImageLock::read(project).unwrap().unwrap();
        let row = |image: LockedImage| (image.tag, image.platform);
        lock.images.into_iter().map(row).collect()
    }

    #[test]
    fn a_recorded_image_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = ImageLock::path_in(dir.path());
        assert_eq!(ImageLock::read(dir.path()).unwrap(), None);
        let image = LockedImage {
            base: None,
            ..locked(TAG, "linux/amd64")
        };
        ImageLock::record(dir.path(), image.clone()).unwrap();
        assert_eq!(ImageLock::read(dir.path()).unwrap().unwrap().images, [image]);
        assert!(fs::read_to_string(&path).unwrap().starts_with("# "));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// So that two people who record different images change different lines.
    #[test]
    fn an_image_replaces_its_own_earlier_record_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
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
            ImageLock::record(dir.path(), locked(tag, platform)).unwrap();
        }
        let expected = [(TAG, "linux/amd64"), (new, "linux/amd64"), (old, "linux/arm64")];
        assert_eq!(
            recorded(dir.path()),
            expected.map(|(tag, platform)| (tag.to_owned(), platform.to_owned()))
        );
    }

    #[rstest]
    #[case::another_version("version = 2\n", "its version is 2, expected 1")]
    #[case::no_version("", "missing field `version`")]
    #[case::no_toml("<<<<<<< ours\n", "line 1")]
    #[case::something_newer("version = 1\nsigned = true\n", "unknown field `signed`")]
    fn an_invalid_file_is_an_error_and_is_kept(#[case] text: &str, #[case] expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = ImageLock::path_in(dir.path());
        fs::write(&path, text).unwrap();
        for error in [
            ImageLock::read(dir.path()).unwrap_err(),
            ImageLock::record(dir.path(), locked(TAG, "linux/amd64")).unwrap_err(),
        ] {
            let message = error.to_string();
            assert!(message.contains(expected), "{message}");
            assert!(message.contains(&*path.to_string_lossy()), "{message}");
            assert!(error.hint().is_some());
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[rstest]
    #[case::nothing(|_: &mut LockedImage| {}, &[])]
    #[case::files(|now: &mut LockedImage| now.hash.push('2'), &["its inputs changed"])]
    #[case::base(|now: &mut LockedImage| now.base = None, &["its base changed from debian:12 (sha256:1) to none"])]
    #[case::a_layer(
        |now: &mut LockedImage| { now.digest = digest("other"); now.layers[1] = digest("changed") },
        &["layer 2 differs"]
    )]
    #[case::a_layer_more(
        |now: &mut LockedImage| { now.digest = digest("other"); now.layers.push(digest("third")) },
        &["recorded: 2 layers, it has 3"]
    )]
    #[case::settings_alone(|now: &mut LockedImage| now.digest = digest("other"), &["a setting or a label differs"])]
    fn what_differs_from_the_record_is_named(
        #[case] change: fn(&mut LockedImage),
        #[case] expected: &[&str],
    ) {
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
