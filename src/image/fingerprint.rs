//! Identifies an image by its content, wherever and whenever it was built.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::labels;
use crate::digest::Digest;
use crate::engine::EngineImage;

/// The layers, settings and labels of an image. Its creation time, the version of ralph and the engine's storage format are
/// not part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFingerprint {
    layers: Vec<Digest>,
    settings: BTreeMap<String, Value>,
    labels: BTreeMap<String, String>,
}

/// Settings that are sets, which engines return in any order.
const SETS: [&str; 2] = ["ExposedPorts", "Volumes"];

impl ImageFingerprint {
    /// The fingerprint of an image in an engine.
    #[must_use]
    pub fn new(image: &EngineImage) -> Self {
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

    /// The layers, lowest first.
    #[must_use]
    pub fn layers(&self) -> &[Digest] {
        &self.layers
    }

    /// The settings and labels, by name.
    pub(super) fn settings(&self) -> BTreeMap<String, Value> {
        let labels = self.labels.iter();
        let labels = labels.map(|(name, value)| (format!("label {name}"), value.as_str().into()));
        self.settings.clone().into_iter().chain(labels).collect()
    }

    /// A digest of everything. The order of layers does not count, because a load may change it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut layers = self.layers.clone();
        layers.sort();
        let layers: Value = layers.iter().map(ToString::to_string).collect();
        let settings: Map<String, Value> = self.settings.clone().into_iter().collect();
        let labels: Value = self.labels.clone().into_iter().collect();
        let fields = [
            ("layers", layers),
            ("settings", settings.into()),
            ("labels", labels),
        ];
        let document: Value = fields.into_iter().collect();
        Digest::sha256(document.to_string().as_bytes())
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
            platform: None,
        }
    }

    #[rstest]
    #[case::another_engine(|image: &mut EngineImage| image.id = Digest::sha256(b"other"))]
    #[case::another_name(|image: &mut EngineImage| image.repo_tags.push("a:b".to_owned()))]
    #[case::another_ralph(|image: &mut EngineImage| { image.labels.insert(labels::VERSION.to_owned(), "2".to_owned()); })]
    #[case::another_order_of_a_set(|image: &mut EngineImage| { image.settings.insert("Volumes".to_owned(), json!(["/b", "/a"])); })]
    #[case::another_order_of_layers(|image: &mut EngineImage| image.diff_ids.reverse())]
    fn an_image_is_the_same(#[case] change: fn(&mut EngineImage)) {
        assert_eq!(changed(change), ImageFingerprint::new(&image()).digest());
    }

    #[rstest]
    #[case::layer(|image: &mut EngineImage| image.diff_ids[0] = Digest::sha256(b"3"))]
    #[case::label(|image: &mut EngineImage| { image.labels.insert("a".to_owned(), "b".to_owned()); })]
    #[case::setting(|image: &mut EngineImage| { image.settings.insert("User".to_owned(), json!("root")); })]
    fn an_image_is_another(#[case] change: fn(&mut EngineImage)) {
        assert_ne!(changed(change), ImageFingerprint::new(&image()).digest());
    }

    fn changed(change: fn(&mut EngineImage)) -> Digest {
        let mut image = image();
        change(&mut image);
        ImageFingerprint::new(&image).digest()
    }
}
