//! The documents of an image whose layers were put in order.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::catalogue::{Catalogue, Encoding, Layer};
use crate::engine::Digest;
use crate::image::labels;

/// An image as it will be: its documents, and its layers in their order.
pub(super) struct Composed<'a> {
    pub(super) config: Document,
    pub(super) manifest: Document,
    pub(super) layers: Vec<&'a Layer>,
}

/// Bytes that are called by their digest.
pub(super) struct Document {
    pub(super) digest: Digest,
    pub(super) bytes: Vec<u8>,
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

impl<'a> Composed<'a> {
    /// Puts the layers in this order and adds labels. What does not change stays as it is, byte for byte, so that the
    /// image keeps its id.
    pub(super) fn new(
        catalogue: &'a Catalogue,
        order: &[usize],
        labels: &BTreeMap<String, String>,
    ) -> Result<Self, serde_json::Error> {
        let layers: Vec<&Layer> = order.iter().map(|at| &catalogue.layers[*at]).collect();
        let is_as_it_was = order.iter().copied().eq(0..order.len()) && labels.is_empty();
        let config = if is_as_it_was {
            Document::new(catalogue.config.clone())
        } else {
            Document::of(&rewritten(&catalogue.config, order, &layers, labels)?)?
        };
        Self::of(config, layers)
    }

    /// An image of some of the layers, which says of which image they are a portion and for the rest nothing.
    pub(super) fn portion(
        catalogue: &'a Catalogue,
        order: &[usize],
        whole: &Digest,
    ) -> Result<Self, serde_json::Error> {
        let layers: Vec<&Layer> = order.iter().map(|at| &catalogue.layers[*at]).collect();
        let mut config: Map<String, Value> = serde_json::from_slice(&catalogue.config)?;
        config.retain(|name, _| ["architecture", "os", "variant"].contains(&name.as_str()));
        config.insert("rootfs".to_owned(), listed(&layers));
        let labels = json!({"Labels": {labels::PORTION_OF: whole}});
        config.insert("config".to_owned(), labels);
        Self::of(Document::of(&config.into())?, layers)
    }

    fn of(config: Document, layers: Vec<&'a Layer>) -> Result<Self, serde_json::Error> {
        let manifest = Document::of(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": config.digest, "size": config.bytes.len()},
            "layers": layers.iter().map(|layer| described(layer)).collect::<Vec<_>>(),
        }))?;
        Ok(Self {
            config,
            manifest,
            layers,
        })
    }

    /// The index of the image, by which containerd finds it. Without a name: that comes last.
    pub(super) fn index(&self) -> Value {
        let (digest, size) = (&self.manifest.digest, self.manifest.bytes.len());
        json!({
            "schemaVersion": 2,
            "manifests": [{"mediaType": MANIFEST, "digest": digest, "size": size}],
        })
    }

    /// The list of images, by which every other engine finds it.
    pub(super) fn list(&self) -> Value {
        let layers: Vec<String> = self.layers.iter().map(|layer| blob_path(&layer.blob)).collect();
        json!([{"Config": blob_path(&self.config.digest), "RepoTags": null, "Layers": layers}])
    }
}

impl Document {
    fn new(bytes: Vec<u8>) -> Self {
        let digest = Digest::sha256(&bytes);
        Self { digest, bytes }
    }

    fn of(value: &Value) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(Self::new)
    }
}

/// Where in the tar file a blob is.
pub(super) fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn described(layer: &Layer) -> Value {
    let media_type = match layer.encoding {
        Encoding::Plain => "application/vnd.oci.image.layer.v1.tar",
        Encoding::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
    };
    json!({"mediaType": media_type, "digest": layer.blob, "size": layer.size})
}

fn rewritten(
    config: &[u8],
    order: &[usize],
    layers: &[&Layer],
    labels: &BTreeMap<String, String>,
) -> Result<Value, serde_json::Error> {
    let mut config: Map<String, Value> = serde_json::from_slice(config)?;
    config.insert("rootfs".to_owned(), listed(layers));
    if let Some(history) = config
        .remove("history")
        .and_then(|history| reordered(history, order))
    {
        config.insert("history".to_owned(), history);
    }
    if !labels.is_empty() {
        let mut inner = object(config.remove("config"));
        let mut all = object(inner.remove("Labels"));
        all.extend(labels.iter().map(|(name, value)| (name.clone(), json!(value))));
        inner.insert("Labels".to_owned(), all.into());
        config.insert("config".to_owned(), inner.into());
    }
    Ok(config.into())
}

fn listed(layers: &[&Layer]) -> Value {
    let diff_ids: Vec<&Digest> = layers.iter().map(|layer| &layer.diff_id).collect();
    json!({"type": "layers", "diff_ids": diff_ids})
}

/// The history in the order of the layers. One with entries that made no layer stays only where no layer moved: there
/// is no saying where they would belong.
fn reordered(history: Value, order: &[usize]) -> Option<Value> {
    if order.iter().copied().eq(0..order.len()) {
        return Some(history);
    }
    let entries = history
        .as_array()
        .filter(|entries| entries.len() == order.len())?;
    Some(order.iter().map(|at| entries[*at].clone()).collect())
}

fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::load::catalogue::Place;

    fn catalogue(config: &Value) -> Catalogue {
        let layer = |name: &str| Layer {
            diff_id: Digest::sha256(name.as_bytes()),
            blob: Digest::sha256(name.as_bytes()),
            size: 1,
            encoding: Encoding::Plain,
            place: Place::Member {
                name: name.to_owned(),
                spooled: None,
            },
        };
        Catalogue {
            config: serde_json::to_vec_pretty(config).unwrap(),
            layers: vec![layer("a"), layer("b")],
        }
    }

    fn written(composed: &Composed<'_>) -> Value {
        serde_json::from_slice(&composed.config.bytes).unwrap()
    }

    #[test]
    fn an_image_that_does_not_change_keeps_its_id() {
        let catalogue = catalogue(&json!({"rootfs": {}, "history": []}));
        let composed = Composed::new(&catalogue, &[0, 1], &BTreeMap::new()).unwrap();
        assert_eq!(composed.config.digest, Digest::sha256(&catalogue.config));
    }

    #[test]
    fn history_and_layers_move_together() {
        let history = json!([{"comment": "a"}, {"comment": "b"}]);
        let catalogue = catalogue(&json!({"os": "linux", "history": history}));
        let composed = Composed::new(&catalogue, &[1, 0], &BTreeMap::new()).unwrap();
        let config = written(&composed);
        assert_eq!(config["history"], json!([{"comment": "b"}, {"comment": "a"}]));
        assert_eq!(
            config["rootfs"]["diff_ids"],
            json!([Digest::sha256(b"b"), Digest::sha256(b"a")])
        );
        assert_eq!(config["os"], "linux");
    }

    #[test]
    fn a_history_that_cannot_be_followed_goes() {
        let catalogue = catalogue(&json!({"history": [{}, {"empty_layer": true}, {}]}));
        let moved = Composed::new(&catalogue, &[1, 0], &BTreeMap::new()).unwrap();
        assert_eq!(written(&moved).get("history"), None);
        let labels = BTreeMap::from([("l".to_owned(), "1".to_owned())]);
        let kept = Composed::new(&catalogue, &[0, 1], &labels).unwrap();
        assert_eq!(written(&kept)["history"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn labels_are_added_to_those_it_has() {
        let catalogue = catalogue(&json!({"config": {"Cmd": ["sh"], "Labels": {"a": "1", "b": "2"}}}));
        let labels = BTreeMap::from([("b".to_owned(), "3".to_owned())]);
        let composed = Composed::new(&catalogue, &[0, 1], &labels).unwrap();
        let expected = json!({"Cmd": ["sh"], "Labels": {"a": "1", "b": "3"}});
        assert_eq!(written(&composed)["config"], expected);
    }
}
