//! The tar file that is sent: one that engines of every kind can read, with the layers they have left out.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, Header};

use super::arrange::LeaveOut;
use super::catalogue::Layer;
use super::compose::{Composed, blob_path};
use super::source::Source;
use crate::engine::Digest;

/// An image and what is sent of it.
pub(super) struct Hybrid<'a> {
    pub(super) image: Composed<'a>,
    pub(super) send: Vec<&'a Layer>,
    pub(super) source: &'a Source,
    pub(super) leave_out: LeaveOut,
}

impl Hybrid<'_> {
    /// Writes it. The list of images comes last: without it nothing can be loaded.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let (mut tar, image) = (Builder::new(out), &self.image);
        // podman tries one format after the other; it is given the one it knows best, alone.
        if self.leave_out != LeaveOut::Nothing {
            add_json(&mut tar, "oci-layout", &json!({"imageLayoutVersion": "1.0.0"}))?;
            add_json(&mut tar, "index.json", &image.index())?;
            add(
                &mut tar,
                &blob_path(&image.manifest.digest),
                &image.manifest.bytes,
            )?;
        }
        add(&mut tar, &blob_path(&image.config.digest), &image.config.bytes)?;
        let layers = once_each(&self.send);
        self.source
            .read_layers(&layers, &mut |layer, bytes| add_layer(&mut tar, layer, bytes))?;
        add_json(&mut tar, "manifest.json", &image.list())?;
        tar.finish()
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

/// Copies a layer and checks on the way that it is what its name says.
fn add_layer(tar: &mut Builder<&mut dyn Write>, layer: &Layer, bytes: &mut dyn Read) -> io::Result<()> {
    let mut hashed = Hashed {
        bytes,
        hasher: Sha256::new(),
    };
    tar.append_data(&mut header(layer.size), blob_path(&layer.blob), &mut hashed)?;
    let found = Digest::finish(hashed.hasher);
    if found == layer.blob {
        return Ok(());
    }
    let message = format!("the layer {} is damaged: its content is {found}", layer.blob);
    Err(io::Error::new(io::ErrorKind::InvalidData, message))
}

fn header(size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(1);
    header
}

struct Hashed<'a> {
    bytes: &'a mut dyn Read,
    hasher: Sha256,
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}
