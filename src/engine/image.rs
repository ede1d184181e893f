//! Inspects, lists, tags and removes images.

use std::collections::{BTreeMap, HashMap};

use bollard::models::{ImageConfig, ImageInspect, ImageSummary};
use bollard::query_parameters::{ListImagesOptions, RemoveImageOptions, TagImageOptions};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;

use super::{Digest, Engine, EngineError, EngineImageReference};

/// How many images are inspected at the same time.
const CONCURRENT_INSPECTS: usize = 8;
/// How often a failed listing is repeated.
const LIST_RETRIES: usize = 20;
/// 2013, the year of the first container images. Engines report the year 1 for an unknown time, and reproducible builds
/// often set 1970 or 1980.
const FIRST_IMAGES: Timestamp = Timestamp::constant(1_356_998_400, 0);

/// An image of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineImage {
    /// The digest of its config, or with containerd that of its manifest. Engines with the same image may differ in it.
    pub id: Digest,
    /// The digests of the uncompressed layers, lowest first.
    pub diff_ids: Vec<Digest>,
    /// Its names in registries, with digests.
    pub repo_digests: Vec<String>,
    /// Its tags in this engine.
    pub repo_tags: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The non-empty defaults of its containers by name, such as `Cmd`, `Env` and `User`.
    pub settings: BTreeMap<String, Value>,
    /// When it was created, if the engine knows. Reproducible builds may set a fixed time.
    pub created: Option<Timestamp>,
    /// When it was last tagged, if the engine knows.
    pub last_tagged: Option<Timestamp>,
    /// Its size in bytes, including layers that it shares with other images.
    pub size: u64,
    /// The operating system and processor that it is for (`linux/arm64`), if the engine knows.
    pub platform: Option<String>,
}

impl EngineImage {
    /// The environment variables of its containers.
    #[must_use]
    pub fn variables(&self) -> BTreeMap<String, String> {
        let pairs = self.settings.get("Env").and_then(Value::as_array);
        let pairs = pairs.into_iter().flatten().filter_map(Value::as_str);
        pairs
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}

impl Engine {
    /// The image with this name or id; `None` when the engine does not have it.
    pub async fn image(&self, name: &str) -> Result<Option<EngineImage>, EngineError> {
        match self.docker.inspect_image(name).await {
            Ok(inspected) => from_inspect(name, inspected).map(Some),
            Err(error) => match EngineError::from_api(name, error) {
                EngineError::NotFound { .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    /// All images, or those with this label (`name` or `name=value`).
    pub async fn images(&self, label: Option<&str>) -> Result<Vec<EngineImage>, EngineError> {
        let filters = label.map(|label| HashMap::from([("label".to_owned(), vec![label.to_owned()])]));
        let options = ListImagesOptions {
            filters,
            ..Default::default()
        };
        let listed = self.list(&options).await?;
        let asked = stream::iter(listed).map(|summary| async move { self.image(&summary.id).await });
        let found: Vec<Option<EngineImage>> = asked.buffered(CONCURRENT_INSPECTS).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Lists images. With containerd the request fails with 404 when an image is removed meanwhile, so it is repeated.
    async fn list(&self, options: &ListImagesOptions) -> Result<Vec<ImageSummary>, EngineError> {
        let mut retries = LIST_RETRIES;
        loop {
            let listed = self.docker.list_images(Some(options.clone())).await;
            match listed.map_err(|error| EngineError::from_api("the images", error)) {
                Err(EngineError::NotFound { .. }) if retries > 0 => retries -= 1,
                listed => return listed,
            }
        }
    }

    /// Tags an image. The tag is moved when another image has it.
    pub async fn tag(&self, image: &Digest, name: &EngineImageReference) -> Result<(), EngineError> {
        let options = TagImageOptions {
            repo: Some(name.repository().to_owned()),
            tag: Some(required_tag(name)?.to_owned()),
        };
        let tagged = self.docker.tag_image(&image.to_string(), Some(options)).await;
        tagged.map_err(|error| EngineError::from_api(&name.to_string(), error))
    }

    /// Removes a tag, and the image with its last tag; by id, the image with all its tags. Does nothing when the engine
    /// does not have it.
    pub async fn remove_image(&self, name: &str) -> Result<(), EngineError> {
        self.remove(name, true).await
    }

    /// Like [`Engine::remove_image`], but keeps an image that a container uses. Returns whether it was removed.
    pub async fn remove_unused(&self, name: &str) -> Result<bool, EngineError> {
        match self.remove(name, false).await {
            Ok(()) => Ok(true),
            Err(EngineError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn remove(&self, name: &str, force: bool) -> Result<(), EngineError> {
        let options = RemoveImageOptions {
            force,
            ..Default::default()
        };
        match self.docker.remove_image(name, Some(options), None).await {
            Ok(_) => Ok(()),
            Err(error) => match EngineError::from_api(name, error) {
                EngineError::NotFound { .. } => Ok(()),
                error => Err(error),
            },
        }
    }
}

/// The tag of a reference. Without one the engine would use `latest`, or push all tags.
pub(super) fn required_tag(name: &EngineImageReference) -> Result<&str, EngineError> {
    name.tag().ok_or_else(|| EngineError::NoTag {
        name: name.to_string(),
    })
}

fn from_inspect(name: &str, inspected: ImageInspect) -> Result<EngineImage, EngineError> {
    let digest = |text: &str| Digest::parse(text).map_err(|error| EngineError::invalid_response(name, error));
    let layers = inspected.root_fs.and_then(|root| root.layers).unwrap_or_default();
    let config = inspected.config.unwrap_or_default();
    let last_tagged = inspected.metadata.and_then(|metadata| metadata.last_tag_time);
    Ok(EngineImage {
        id: digest(&inspected.id.unwrap_or_default())?,
        diff_ids: layers
            .iter()
            .map(|layer| digest(layer))
            .collect::<Result<_, _>>()?,
        repo_digests: short_names(inspected.repo_digests),
        repo_tags: short_names(inspected.repo_tags),
        settings: settings(&config),
        labels: config.labels.unwrap_or_default().into_iter().collect(),
        created: real_time(inspected.created),
        last_tagged: real_time(last_tagged),
        size: inspected
            .size
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or_default(),
        platform: platform(inspected.os, inspected.architecture),
    })
}

/// A time that an engine reports, unless it only stands for an unknown one.
fn real_time(text: Option<String>) -> Option<Timestamp> {
    let time: Timestamp = text?.parse().ok()?;
    (time >= FIRST_IMAGES).then_some(time)
}

fn platform(os: Option<String>, architecture: Option<String>) -> Option<String> {
    let known = |text: Option<String>| text.filter(|text| !text.is_empty());
    Some(format!("{}/{}", known(os)?, known(architecture)?))
}

/// Removes the default registry from names, as Docker does and podman does not.
fn short_names(names: Option<Vec<String>>) -> Vec<String> {
    let shorten = |name: String| {
        let short = name.strip_prefix("docker.io/");
        short
            .map_or(name.as_str(), |short| {
                short.strip_prefix("library/").unwrap_or(short)
            })
            .to_owned()
    };
    names.unwrap_or_default().into_iter().map(shorten).collect()
}

/// Leaves out empty values, because some engines send them and some do not.
fn settings(config: &ImageConfig) -> BTreeMap<String, Value> {
    let Ok(Value::Object(all)) = serde_json::to_value(config) else {
        return BTreeMap::new();
    };
    let is_empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    };
    all.into_iter()
        .filter(|(name, value)| name != "Labels" && !is_empty(value))
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn inspected(mut found: Value) -> EngineImage {
        found["Id"] = json!(Digest::sha256(b"id"));
        from_inspect("x", serde_json::from_value(found).unwrap()).unwrap()
    }

    #[test]
    fn empty_settings_are_left_out() {
        let image = inspected(json!({
            "Config": {"Cmd": ["sh"], "Env": [], "User": "", "Volumes": null, "Labels": {"a": "b"}},
        }));
        assert_eq!(
            image.settings,
            BTreeMap::from([("Cmd".to_owned(), json!(["sh"]))])
        );
        assert_eq!(image.labels["a"], "b");
    }

    #[rstest]
    #[case::unknown_to_the_engine("0001-01-01T00:00:00Z", false)]
    #[case::set_by_nix("1970-01-01T00:00:01Z", false)]
    #[case::oldest_time_in_a_zip_file("1980-01-01T00:00:00Z", false)]
    #[case::real("2026-11-16T21:00:00.5Z", true)]
    fn a_time_that_stands_for_an_unknown_one_is_left_out(#[case] time: &str, #[case] is_real: bool) {
        let image = inspected(json!({"Created": time, "Metadata": {"LastTagTime": time}}));
        let expected = is_real.then(|| time.parse().unwrap());
        assert_eq!((image.created, image.last_tagged), (expected, expected));
    }

    #[rstest]
    #[case::known(json!({"Os": "linux", "Architecture": "arm64", "Variant": "v8"}), Some("linux/arm64"))]
    #[case::empty(json!({"Os": "", "Architecture": ""}), None)]
    #[case::missing(json!({}), None)]
    fn the_platform_is_read_where_the_engine_knows_it(#[case] found: Value, #[case] expected: Option<&str>) {
        assert_eq!(inspected(found).platform.as_deref(), expected);
    }
}
