//! The config, manifest and index of an image whose layers were arranged.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::contents::{ImageContents, ImageLayer, LayerEncoding};
use crate::digest::Digest;

/// An image as it will be in the engine.
pub(super) struct ComposedImage<'a> {
    pub(super) config: ImageDocument,
    pub(super) manifest: ImageDocument,
    pub(super) layers: Vec<&'a ImageLayer>,
}

/// A JSON document that is addressed by its digest.
pub(super) struct ImageDocument {
    pub(super) digest: Digest,
    pub(super) bytes: Vec<u8>,
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

impl<'a> ComposedImage<'a> {
    /// Stacks the layers in this order and adds labels. If neither changes anything, the config stays as it is, byte for
    /// byte, and the image keeps its id.
    pub(super) fn new(
        contents: &'a ImageContents,
        order: &[usize],
        labels: &BTreeMap<String, String>,
    ) -> Result<Self, serde_json::Error> {
        let layers: Vec<&ImageLayer> = order.iter().map(|at| &contents.layers[*at]).collect();
        let is_unchanged = order.iter().copied().eq(0..order.len()) && labels.is_empty();
        let config = if is_unchanged {
            ImageDocument::new(contents.config.clone())
        } else {
            ImageDocument::from_json(&rewrite_config(&contents.config, order, &layers, labels)?)?
        };
        let manifest = ImageDocument::from_json(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": config.digest, "size": config.bytes.len()},
            "layers": layers.iter().map(|layer| descriptor(layer)).collect::<Vec<_>>(),
        }))?;
        Ok(Self {
            config,
            manifest,
            layers,
        })
    }

    /// `index.json`, which containerd reads. It has no name, because the tag is set last.
    pub(super) fn index(&self) -> Value {
        let (digest, size) = (&self.manifest.digest, self.manifest.bytes.len());
        json!({
            "schemaVersion": 2,
            "manifests": [{"mediaType": MANIFEST, "digest": digest, "size": size}],
        })
    }

    /// `manifest.json`, which every other engine reads.
    pub(super) fn image_list(&self) -> Value {
        let layers: Vec<String> = self.layers.iter().map(|layer| blob_path(&layer.blob)).collect();
        json!([{"Config": blob_path(&self.config.digest), "RepoTags": null, "Layers": layers}])
    }
}

impl ImageDocument {
    fn new(bytes: Vec<u8>) -> Self {
        let digest = Digest::sha256(&bytes);
        Self { digest, bytes }
    }

    fn from_json(value: &Value) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(Self::new)
    }
}

/// The path of a blob in the archive.
pub(super) fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn descriptor(layer: &ImageLayer) -> Value {
    let media_type = match layer.encoding {
        LayerEncoding::Plain => "application/vnd.oci.image.layer.v1.tar",
        LayerEncoding::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
    };
    json!({"mediaType": media_type, "digest": layer.blob, "size": layer.size})
}

fn rewrite_config(
    config: &[u8],
    order: &[usize],
    layers: &[&ImageLayer],
    labels: &BTreeMap<String, String>,
) -> Result<Value, serde_json::Error> {
    let mut config: Map<String, Value> = serde_json::from_slice(config)?;
    config.insert("rootfs".to_owned(), rootfs(layers));
    if let Some(history) = config
        .remove("history")
        .and_then(|history| reorder_history(history, order))
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

fn rootfs(layers: &[&ImageLayer]) -> Value {
    let diff_ids: Vec<&Digest> = layers.iter().map(|layer| &layer.diff_id).collect();
    json!({"type": "layers", "diff_ids": diff_ids})
}

/// The history in the order of the layers. A history with entries that made no layer is dropped if layers moved, because
/// those entries have no place then.
fn reorder_history(history: Value, order: &[usize]) -> Option<Value> {
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
    use crate::image::load::contents::LayerLocation;

    fn contents(config: &Value) -> ImageContents {
        let layer = |name: &str| ImageLayer {
            diff_id: Digest::sha256(name.as_bytes()),
            blob: Digest::sha256(name.as_bytes()),
            size: 1,
            encoding: LayerEncoding::Plain,
            location: LayerLocation::Member(name.to_owned()),
        };
        ImageContents {
            config: serde_json::to_vec_pretty(config).unwrap(),
            layers: vec![layer("a"), layer("b")],
        }
    }

    fn written(composed: &ComposedImage<'_>) -> Value {
        serde_json::from_slice(&composed.config.bytes).unwrap()
    }

    #[test]
    fn an_unchanged_image_keeps_its_id() {
        let contents = contents(&json!({"rootfs": {}, "history": []}));
        let composed = ComposedImage::new(&contents, &[0, 1], &BTreeMap::new()).unwrap();
        assert_eq!(composed.config.digest, Digest::sha256(&contents.config));
    }

    #[test]
    fn history_and_layers_move_together() {
        let history = json!([{"comment": "a"}, {"comment": "b"}]);
        let contents = contents(&json!({"os": "linux", "history": history}));
        let composed = ComposedImage::new(&contents, &[1, 0], &BTreeMap::new()).unwrap();
        let config = written(&composed);
        assert_eq!(config["history"], json!([{"comment": "b"}, {"comment": "a"}]));
        assert_eq!(
            config["rootfs"]["diff_ids"],
            json!([Digest::sha256(b"b"), Digest::sha256(b"a")])
        );
        assert_eq!(config["os"], "linux");
    }

    #[test]
    fn a_history_with_empty_layers_is_dropped_when_layers_move() {
        let contents = contents(&json!({"history": [{}, {"empty_layer": true}, {}]}));
        let moved = ComposedImage::new(&contents, &[1, 0], &BTreeMap::new()).unwrap();
        assert_eq!(written(&moved).get("history"), None);
        let labels = BTreeMap::from([("l".to_owned(), "1".to_owned())]);
        let kept = ComposedImage::new(&contents, &[0, 1], &labels).unwrap();
        assert_eq!(written(&kept)["history"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn labels_are_added_to_those_it_has() {
        let contents = contents(&json!({"config": {"Cmd": ["sh"], "Labels": {"a": "1", "b": "2"}}}));
        let labels = BTreeMap::from([("b".to_owned(), "3".to_owned())]);
        let composed = ComposedImage::new(&contents, &[0, 1], &labels).unwrap();
        let expected = json!({"Cmd": ["sh"], "Labels": {"a": "1", "b": "3"}});
        assert_eq!(written(&composed)["config"], expected);
    }
}
