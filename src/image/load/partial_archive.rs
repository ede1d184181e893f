//! The archive that is sent, without the layers that the engine has.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, Header};

use super::arrange::OmittableLayers;
use super::compose::{ComposedImage, blob_path};
use super::contents::ImageLayer;
use super::source::{LayerWriter, LoadSource};
use crate::digest::Digest;
use crate::text::counted;

/// Writes an archive of the image with the layers `send`. `manifest.json` comes last: without it an engine loads nothing.
pub(super) fn write(
    out: &mut dyn Write,
    image: &ComposedImage<'_>,
    send: &[&ImageLayer],
    source: &LoadSource,
    omittable: OmittableLayers,
) -> io::Result<()> {
    let mut tar = Builder::new(out);
    // Only containerd reads the index. Graph drivers and podman read `manifest.json`.
    if omittable == OmittableLayers::Any {
        add_json(&mut tar, "oci-layout", &json!({"imageLayoutVersion": "1.0.0"}))?;
        add_json(&mut tar, "index.json", &image.index())?;
        let manifest = &image.manifest;
        add(&mut tar, &blob_path(&manifest.digest), &manifest.bytes)?;
    }
    add(&mut tar, &blob_path(&image.config.digest), &image.config.bytes)?;
    source.read_layers(&without_duplicates(send), &mut |layer, write| {
        add_layer(&mut tar, layer, write)
    })?;
    add_json(&mut tar, "manifest.json", &image.image_list())?;
    tar.finish()
}

/// Hashes the layers `send`, and fails if one is not the one that its digest names.
pub(super) fn verify(send: &[&ImageLayer], source: &LoadSource) -> io::Result<()> {
    source.read_layers(&without_duplicates(send), &mut |layer, write| {
        let mut hasher = Sha256::new();
        write(&mut hasher)?;
        let found = Digest::from_hasher(hasher);
        if found == layer.blob {
            return Ok(());
        }
        Err(damaged(layer, &format!("the digest of its content is {found}")))
    })
}

fn damaged(layer: &ImageLayer, reason: &str) -> io::Error {
    let message = format!("the layer {} is damaged: {reason}", layer.blob);
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// A layer that occurs twice is sent once.
fn without_duplicates<'a>(layers: &[&'a ImageLayer]) -> Vec<&'a ImageLayer> {
    let mut seen = BTreeSet::new();
    layers
        .iter()
        .copied()
        .filter(|layer| seen.insert(&layer.blob))
        .collect()
}

fn add_json(tar: &mut Builder<&mut dyn Write>, name: &str, value: &Value) -> io::Result<()> {
    add(tar, name, value.to_string().as_bytes())
}

fn add(tar: &mut Builder<&mut dyn Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(bytes.len() as u64), name, bytes)
}

fn add_layer(
    tar: &mut Builder<&mut dyn Write>,
    layer: &ImageLayer,
    write: &mut LayerWriter<'_>,
) -> io::Result<()> {
    let mut header = header(layer.size);
    header.set_path(blob_path(&layer.blob))?;
    header.set_cksum();
    let out = tar.get_mut();
    out.write_all(header.as_bytes())?;
    let written = write(out)?;
    if written != layer.size {
        let reason = format!("it has {}, expected {}", counted(written, "byte"), layer.size);
        return Err(damaged(layer, &reason));
    }
    let padding = written.next_multiple_of(512) - written;
    io::copy(&mut io::repeat(0).take(padding), out).map(drop)
}

fn header(size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(1);
    header
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use rstest::rstest;

    use super::*;
    use crate::image::load::cache::LayerCache;
    use crate::image::load::contents::ImageContents;

    const LAYERS: [&[u8]; 3] = [b"the first layer", b"the second layer", b"the last layer"];

    /// An archive with these three layers, with the names that `docker save` uses.
    fn archive(dir: &Path) -> LoadSource {
        let names = LAYERS.map(|layer| format!("{}/layer.tar", Digest::sha256(layer).hex()));
        let config = json!({"rootfs": {"type": "layers", "diff_ids": LAYERS.map(Digest::sha256)}});
        let manifest = json!([{"Config": "config.json", "Layers": names}]);
        let path = dir.join("archive.tar");
        let mut file = fs::File::create(&path).unwrap();
        let mut tar = Builder::new(&mut file as &mut dyn Write);
        for (name, layer) in names.iter().zip(LAYERS) {
            add(&mut tar, name, layer).unwrap();
        }
        add_json(&mut tar, "config.json", &config).unwrap();
        add_json(&mut tar, "manifest.json", &manifest).unwrap();
        tar.finish().unwrap();
        LoadSource::Archive(path)
    }

    fn contents(source: &LoadSource) -> ImageContents {
        let dir = tempfile::tempdir().unwrap();
        let cache = LayerCache::new(dir.path());
        source.read_contents(&cache, &[]).unwrap()
    }

    fn written(
        contents: &ImageContents,
        source: &LoadSource,
        send: &[usize],
        omittable: OmittableLayers,
    ) -> Vec<(String, Vec<u8>)> {
        let order: Vec<usize> = (0..contents.layers.len()).collect();
        let image = ComposedImage::new(contents, &order, &BTreeMap::new()).unwrap();
        let send: Vec<&ImageLayer> = send.iter().map(|at| &contents.layers[*at]).collect();
        let mut bytes = Vec::new();
        write(&mut bytes, &image, &send, source, omittable).unwrap();
        verify(&send, source).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let members = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().to_string_lossy().into_owned(), content)
        });
        members.collect()
    }

    #[rstest]
    #[case::everything(&[0, 1, 2])]
    #[case::the_last(&[2])]
    #[case::nothing(&[])]
    fn all_layers_are_listed_and_those_that_are_sent_are_included(#[case] send: &[usize]) {
        let dir = tempfile::tempdir().unwrap();
        let source = archive(dir.path());
        let members = written(&contents(&source), &source, send, OmittableLayers::Prefix);

        let (last, list) = members.last().unwrap();
        assert_eq!(last, "manifest.json");
        let list: Value = serde_json::from_slice(list).unwrap();
        assert_eq!(
            list[0]["Layers"],
            json!(LAYERS.map(|layer| blob_path(&Digest::sha256(layer))))
        );
        let is_there = |layer: &[u8]| members.iter().any(|(_, content)| content == layer);
        let held: Vec<usize> = (0..LAYERS.len()).filter(|at| is_there(LAYERS[*at])).collect();
        assert_eq!(held, send);
        for (name, content) in members.iter().filter(|(name, _)| name.starts_with("blobs/")) {
            assert_eq!(*name, blob_path(&Digest::sha256(content)));
        }
    }

    #[rstest]
    #[case::containerd(OmittableLayers::Any, true)]
    #[case::graph_driver(OmittableLayers::Prefix, false)]
    #[case::podman(OmittableLayers::Nothing, false)]
    fn only_containerd_gets_an_index(#[case] omittable: OmittableLayers, #[case] expected: bool) {
        let dir = tempfile::tempdir().unwrap();
        let source = archive(dir.path());
        let members = written(&contents(&source), &source, &[2], omittable);
        let find = |wanted: &str| members.iter().find(|(name, _)| name == wanted);
        assert_eq!(
            (find("oci-layout").is_some(), find("index.json").is_some()),
            (expected, expected)
        );

        if let Some((_, index)) = find("index.json") {
            let index: Value = serde_json::from_slice(index).unwrap();
            let digest = Digest::parse(index["manifests"][0]["digest"].as_str().unwrap()).unwrap();
            let (_, manifest) = find(&blob_path(&digest)).unwrap();
            let manifest: Value = serde_json::from_slice(manifest).unwrap();
            let digests: Vec<&Value> = manifest["layers"]
                .as_array()
                .unwrap()
                .iter()
                .map(|layer| &layer["digest"])
                .collect();
            assert_eq!(json!(digests), json!(LAYERS.map(Digest::sha256)));
        }
    }
}
