//! What an image is, wherever and whenever it was built.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::labels;
use crate::engine::{Digest, EngineImage};

/// What an image consists of: its layers, and what a container of it starts with. When it was made, and by which ralph,
/// is no part of it; nor is the form in which an engine keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fingerprint {
    layers: Vec<Digest>,
    settings: BTreeMap<String, Value>,
    labels: BTreeMap<String, String>,
}

/// Settings that are sets: engines give them in any order.
const SETS: [&str; 2] = ["ExposedPorts", "Volumes"];

impl Fingerprint {
    /// That of an image in an engine.
    #[must_use]
    pub fn of(image: &EngineImage) -> Self {
        let mut settings = image.settings.clone();
        for name in SETS {
            if let Some(Value::Array(items)) = settings.get_mut(name) {
                items.sort_by_key(ToString::to_string);
            }
        }
        let mut labels = image.labels.clone();
        labels.remove(labels::VERSION);
        Self {
            layers: image.diff_ids.clone(),
            settings,
            labels,
        }
    }

    /// Its layers, the lowest first.
    #[must_use]
    pub fn layers(&self) -> &[Digest] {
        &self.layers
    }

    /// What a container of it starts with, and its labels, by name.
    pub(super) fn settings(&self) -> BTreeMap<String, Value> {
        let labels = self.labels.iter();
        let labels = labels.map(|(name, value)| (format!("label {name}"), value.as_str().into()));
        self.settings.clone().into_iter().chain(labels).collect()
    }

    /// One digest of all of it. Layers that may change places do, so that their order does not count.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut sorted = self.clone();
        sorted.layers.sort();
        // A map of strings to JSON can always be written as JSON.
        Digest::sha256(&serde_json::to_vec(&sorted).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn image() -> EngineImage {
        EngineImage {
            id: Digest::sha256(b"id"),
            diff_ids: vec![Digest::sha256(b"1"), Digest::sha256(b"2")],
            repo_digests: Vec::new(),
            repo_tags: Vec::new(),
            labels: BTreeMap::from([(labels::VERSION.to_owned(), "1".to_owned())]),
            settings: BTreeMap::from([("Volumes".to_owned(), json!(["/a", "/b"]))]),
            created: None,
            last_tagged: None,
            size: 1,
        }
    }

    #[rstest]
    #[case::another_engine(|image: &mut EngineImage| image.id = Digest::sha256(b"other"))]
    #[case::another_name(|image: &mut EngineImage| image.repo_tags.push("a:b".to_owned()))]
    #[case::another_ralph(|image: &mut EngineImage| { image.labels.insert(labels::VERSION.to_owned(), "2".to_owned()); })]
    #[case::another_order_of_a_set(|image: &mut EngineImage| { image.settings.insert("Volumes".to_owned(), json!(["/b", "/a"])); })]
    #[case::another_order_of_layers(|image: &mut EngineImage| image.diff_ids.reverse())]
    fn an_image_is_the_same(#[case] change: fn(&mut EngineImage)) {
        assert_eq!(changed(change), Fingerprint::of(&image()).digest());
    }

    #[rstest]
    #[case::layer(|image: &mut EngineImage| image.diff_ids[0] = Digest::sha256(b"3"))]
    #[case::label(|image: &mut EngineImage| { image.labels.insert("a".to_owned(), "b".to_owned()); })]
    #[case::setting(|image: &mut EngineImage| { image.settings.insert("User".to_owned(), json!("root")); })]
    fn an_image_is_another(#[case] change: fn(&mut EngineImage)) {
        assert_ne!(changed(change), Fingerprint::of(&image()).digest());
    }

    fn changed(change: fn(&mut EngineImage)) -> Digest {
        let mut image = image();
        change(&mut image);
        Fingerprint::of(&image).digest()
    }
}
