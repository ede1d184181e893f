//! The tar file that is sent, with the layers left out that the engine has.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, Header};

use super::arrange::LeaveOut;
use super::catalogue::Layer;
use super::compose::{Composed, blob_path};
use super::copy::copy;
use super::portion::Turn;
use super::source::Source;
use crate::engine::Digest;

/// An image and what is sent of it.
pub(super) struct Hybrid<'a> {
    pub(super) image: Composed<'a>,
    pub(super) send: Vec<&'a Layer>,
    pub(super) source: &'a Source,
    pub(super) leave_out: LeaveOut,
    pub(super) check: Check,
}

/// Whether layers are checked on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Each must be what its name says.
    Layers,
    /// Whoever receives them finds that out: an engine hashes what it is sent anyway.
    Nothing,
}

impl Hybrid<'_> {
    /// Writes it when it is its turn. The list of images comes last: without it nothing can be loaded.
    pub(super) fn write(&self, out: &mut dyn Write, turn: Turn) -> io::Result<()> {
        let mut tar = Builder::new(out);
        turn.take(|| {
            self.write_content(&mut tar)?;
            tar.get_mut().flush()
        })?;
        add_json(&mut tar, "manifest.json", &self.image.list())?;
        tar.finish()
    }

    fn write_content(&self, tar: &mut Builder<&mut dyn Write>) -> io::Result<()> {
        let image = &self.image;
        // Only containerd goes by the index; graph drivers and podman go by the list, and would read the rest in vain.
        if self.leave_out == LeaveOut::Any {
            add_json(tar, "oci-layout", &json!({"imageLayoutVersion": "1.0.0"}))?;
            add_json(tar, "index.json", &image.index())?;
            add(tar, &blob_path(&image.manifest.digest), &image.manifest.bytes)?;
        }
        add(tar, &blob_path(&image.config.digest), &image.config.bytes)?;
        let layers = once_each(&self.send);
        self.source.read_layers(&layers, &mut |layer, bytes| {
            add_layer(tar, layer, bytes, self.check)
        })
    }
}

/// A layer that occurs twice is sent once.
fn once_each<'a>(layers: &[&'a Layer]) -> Vec<&'a Layer> {
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

/// Copies a layer.
fn add_layer(
    tar: &mut Builder<&mut dyn Write>,
    layer: &Layer,
    bytes: &mut dyn Read,
    check: Check,
) -> io::Result<()> {
    let mut header = header(layer.size);
    header.set_path(blob_path(&layer.blob))?;
    header.set_cksum();
    let out = tar.get_mut();
    out.write_all(header.as_bytes())?;
    let damaged = |why: String| {
        let message = format!("the layer {} is damaged: {why}", layer.blob);
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let copied = match check {
        Check::Nothing => copy(bytes, out)?,
        Check::Layers => {
            let mut hashed = Hashed {
                out,
                hasher: Sha256::new(),
            };
            let copied = copy(bytes, &mut hashed)?;
            let found = Digest::from_hasher(hashed.hasher);
            if found != layer.blob {
                return Err(damaged(format!("its content is {found}")));
            }
            copied
        }
    };
    if copied != layer.size {
        return Err(damaged(format!("it has {copied} bytes, not {}", layer.size)));
    }
    let padding = copied.next_multiple_of(512) - copied;
    copy(&mut io::repeat(0).take(padding), tar.get_mut()).map(drop)
}

fn header(size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(1);
    header
}

struct Hashed<'a> {
    out: &'a mut dyn Write,
    hasher: Sha256,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use rstest::rstest;

    use super::*;
    use crate::image::load::cache::LayerCache;
    use crate::image::load::catalogue::Catalogue;

    const LAYERS: [&[u8]; 3] = [b"the first layer", b"the second layer", b"the last layer"];

    /// An archive with these three layers, each as it is named by `docker save`.
    fn archive(dir: &Path) -> Source {
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
        Source::Archive(path)
    }

    fn catalogue(source: &Source) -> Catalogue {
        let dir = tempfile::tempdir().unwrap();
        let cache = LayerCache::new(dir.path(), crate::clock::system());
        source.catalogue(&cache, &[]).unwrap()
    }

    fn written(
        catalogue: &Catalogue,
        source: &Source,
        send: &[usize],
        leave_out: LeaveOut,
    ) -> Vec<(String, Vec<u8>)> {
        let order: Vec<usize> = (0..catalogue.layers.len()).collect();
        let hybrid = Hybrid {
            image: Composed::new(catalogue, &order, &BTreeMap::new()).unwrap(),
            send: send.iter().map(|at| &catalogue.layers[*at]).collect(),
            source,
            leave_out,
            check: Check::Layers,
        };
        let mut bytes = Vec::new();
        hybrid.write(&mut bytes, Turn::alone()).unwrap();
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
    fn it_lists_all_layers_and_holds_those_that_are_sent(#[case] send: &[usize]) {
        let dir = tempfile::tempdir().unwrap();
        let source = archive(dir.path());
        let members = written(&catalogue(&source), &source, send, LeaveOut::Prefix);

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
    #[case::containerd(LeaveOut::Any, true)]
    #[case::graph_driver(LeaveOut::Prefix, false)]
    #[case::podman(LeaveOut::Nothing, false)]
    fn an_index_is_written_where_it_is_read(#[case] leave_out: LeaveOut, #[case] expected: bool) {
        let dir = tempfile::tempdir().unwrap();
        let source = archive(dir.path());
        let members = written(&catalogue(&source), &source, &[2], leave_out);
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
