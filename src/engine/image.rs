//! The images an engine has.

use std::collections::{BTreeMap, HashMap};

use bollard::models::{ImageConfig, ImageInspect, ImageSummary};
use bollard::query_parameters::{ListImagesOptions, RemoveImageOptions, TagImageOptions};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;

use super::{Digest, Engine, EngineError, Reference};

/// How many images are asked about at once.
const AT_ONCE: usize = 8;
/// How often they are listed once more.
const LISTINGS: usize = 20;

/// An image as the engine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its id: the digest of its config, or with containerd that of its manifest. Never a name for its content.
    pub id: Digest,
    /// The uncompressed layers, lowest first.
    pub diff_ids: Vec<Digest>,
    /// What registries call it.
    pub repo_digests: Vec<String>,
    /// What it is called here.
    pub repo_tags: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What a container of it starts with, by name: its command, its variables, its user. Nothing that is empty.
    pub settings: BTreeMap<String, Value>,
    /// When it was made; images that are built the same twice often carry a made-up time.
    pub created: Option<Timestamp>,
    /// When it was last given a name here, as far as the engine remembers.
    pub named: Option<Timestamp>,
    /// How many bytes it takes, shared layers included.
    pub size: u64,
}

impl Image {
    /// The variables that a container of it starts with.
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
    /// The image of this name or id, if the engine has it.
    pub async fn image(&self, name: &str) -> Result<Option<Image>, EngineError> {
        match self.docker.inspect_image(name).await {
            Ok(found) => read(name, found).map(Some),
            Err(error) => match EngineError::from_api(name, error) {
                EngineError::NotFound { .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    /// All images, or those with this label (`name` or `name=value`).
    pub async fn images(&self, label: Option<&str>) -> Result<Vec<Image>, EngineError> {
        let filters = label.map(|label| HashMap::from([("label".to_owned(), vec![label.to_owned()])]));
        let options = ListImagesOptions {
            filters,
            ..Default::default()
        };
        let listed = self.list(&options).await?;
        let asked = stream::iter(listed).map(|summary| async move { self.image(&summary.id).await });
        let found: Vec<Option<Image>> = asked.buffered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Lists images. With containerd, an image that is removed while they are listed makes the list itself "not found".
    async fn list(&self, options: &ListImagesOptions) -> Result<Vec<ImageSummary>, EngineError> {
        let mut tries = LISTINGS;
        loop {
            let listed = self.docker.list_images(Some(options.clone())).await;
            match listed.map_err(|error| EngineError::from_api("the images", error)) {
                Err(EngineError::NotFound { .. }) if tries > 0 => tries -= 1,
                listed => return listed,
            }
        }
    }

    /// Gives an image a name; it is taken from the image that had it.
    pub async fn tag(&self, image: &Digest, name: &Reference) -> Result<(), EngineError> {
        let options = TagImageOptions {
            repo: Some(name.repository().to_owned()),
            tag: Some(tag_of(name)?.to_owned()),
        };
        let tagged = self.docker.tag_image(image.as_str(), Some(options)).await;
        tagged.map_err(|error| EngineError::from_api(&name.to_string(), error))
    }

    /// Removes a name, and the image when it was its last one; by id, the image with all its names. One that is not
    /// there is removed already.
    pub async fn remove_image(&self, name: &str) -> Result<(), EngineError> {
        self.remove(name, Force::Yes).await
    }

    /// As [`Engine::remove_image`], unless a container was made from the image.
    pub async fn remove_unused(&self, name: &str) -> Result<Removal, EngineError> {
        match self.remove(name, Force::No).await {
            Ok(()) => Ok(Removal::Removed),
            Err(EngineError::Conflict { .. }) => Ok(Removal::InUse),
            Err(error) => Err(error),
        }
    }

    async fn remove(&self, name: &str, force: Force) -> Result<(), EngineError> {
        let options = RemoveImageOptions {
            force: force == Force::Yes,
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Force {
    Yes,
    No,
}

/// What became of a name that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is gone, and with it the image if it had no other.
    Removed,
    /// A container needs it: it stays.
    InUse,
}

/// The tag of a name that is to be given or sent. Without one the engine would take `latest`, or all.
pub(super) fn tag_of(name: &Reference) -> Result<&str, EngineError> {
    name.tag().ok_or_else(|| EngineError::NoTag {
        name: name.to_string(),
    })
}

fn read(name: &str, found: ImageInspect) -> Result<Image, EngineError> {
    let digest = |text: &str| {
        Digest::parse(text).map_err(|error| EngineError::Answer {
            subject: name.to_owned(),
            reason: error.to_string(),
        })
    };
    let layers = found.root_fs.and_then(|root| root.layers).unwrap_or_default();
    let config = found.config.unwrap_or_default();
    let named = found.metadata.and_then(|metadata| metadata.last_tag_time);
    Ok(Image {
        id: digest(&found.id.unwrap_or_default())?,
        diff_ids: layers
            .iter()
            .map(|layer| digest(layer))
            .collect::<Result<_, _>>()?,
        repo_digests: familiar(found.repo_digests),
        repo_tags: familiar(found.repo_tags),
        settings: settings(&config),
        labels: config.labels.unwrap_or_default().into_iter().collect(),
        created: found.created.and_then(|time| time.parse().ok()),
        named: named.and_then(|time| time.parse().ok()).filter(is_moment),
        size: found
            .size
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or_default(),
    })
}

/// Names as users write them: podman answers with the registry that Docker leaves out.
fn familiar(names: Option<Vec<String>>) -> Vec<String> {
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

/// An engine that does not remember says the year 1.
fn is_moment(time: &Timestamp) -> bool {
    *time > Timestamp::UNIX_EPOCH
}

/// Engines differ in whether they leave out what is empty.
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
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_empty_is_no_setting_and_the_year_1_no_moment() {
        let found = json!({
            "Id": Digest::of(b"id"),
            "Config": {"Cmd": ["sh"], "Env": [], "User": "", "Volumes": null, "Labels": {"a": "b"}},
            "Metadata": {"LastTagTime": "0001-01-01T00:00:00Z"},
        });
        let image = read("x", serde_json::from_value(found).unwrap()).unwrap();
        assert_eq!(
            image.settings,
            BTreeMap::from([("Cmd".to_owned(), json!(["sh"]))])
        );
        assert_eq!((image.labels["a"].as_str(), image.named), ("b", None));
    }
}
