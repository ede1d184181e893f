//! An image's config and layers.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::store_tar::StoreLayer;
use crate::digest::Digest;

/// An image's config and the descriptions of its layers, without the layers' bytes.
#[derive(Clone, Debug)]
pub struct ImageContents {
    /// The config, byte for byte.
    pub config: Vec<u8>,
    /// The layers, lowest first.
    pub layers: Vec<ImageLayer>,
}

/// One layer.
#[derive(Clone, Debug)]
pub struct ImageLayer {
    /// The digest of its uncompressed tar, by which engines know it.
    pub diff_id: Digest,
    /// The digest of its bytes as they are sent.
    pub blob: Digest,
    /// The number of bytes that are sent.
    pub size: u64,
    /// Whether those bytes are compressed.
    pub encoding: LayerEncoding,
    /// Where to read them.
    pub(super) location: LayerLocation,
}

/// How a layer's bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerEncoding {
    /// A plain tar.
    Plain,
    /// A tar compressed with gzip.
    Gzip,
}

impl LayerEncoding {
    /// Detects the encoding by a file's first bytes.
    pub(super) fn detect(beginning: &[u8]) -> Self {
        if beginning.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else {
            Self::Plain
        }
    }
}

/// Where a layer's bytes are read from.
#[derive(Clone, Debug)]
pub(super) enum LayerLocation {
    /// A part of a file.
    File(FileSlice),
    /// A member of the tar stream that the source produces. The stream is read again for it.
    Member(String),
    /// Files in the Nix store.
    Store(StoreLayer),
}

/// The bytes of an open file from an offset on.
#[derive(Clone, Debug)]
pub(super) struct FileSlice {
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
}

impl Read for FileSlice {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Reads the layers that an image's config lists.
pub(super) fn diff_ids(config: &[u8]) -> Result<Vec<Digest>, String> {
    let config: Map<String, Value> =
        serde_json::from_slice(config).map_err(|error| format!("its config is not valid: {error}"))?;
    let listed = config.get("rootfs").and_then(|rootfs| rootfs.get("diff_ids"));
    let listed = listed
        .and_then(Value::as_array)
        .ok_or("its config lists no layers")?;
    let digest =
        |value: &Value| Digest::parse(value.as_str().unwrap_or_default()).map_err(|error| error.to_string());
    listed.iter().map(digest).collect()
}
