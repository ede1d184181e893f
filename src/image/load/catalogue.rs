//! What an image consists of.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::store_tar::StoreLayer;
use crate::engine::Digest;

/// An image's config and layers, without the layers' bytes.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// The config, just as it was written.
    pub config: Vec<u8>,
    /// The layers, lowest first.
    pub layers: Vec<Layer>,
}

/// One layer.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The digest of its uncompressed tar, by which engines know it.
    pub diff_id: Digest,
    /// The digest of its bytes as they are sent.
    pub blob: Digest,
    /// How many bytes those are.
    pub size: u64,
    /// How they are packed.
    pub encoding: Encoding,
    /// Where its bytes are.
    pub(super) place: Place,
}

/// How a layer's bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A plain tar.
    Plain,
    /// A tar packed with gzip.
    Gzip,
}

impl Encoding {
    /// Tells it by a file's first bytes.
    pub(super) fn of(beginning: &[u8]) -> Self {
        if beginning.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else {
            Self::Plain
        }
    }
}

/// Where a layer's bytes are.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// In a file.
    File(Slice),
    /// In what its source streams, under this name; and on the spool, if it went there.
    Member { name: String, spooled: Option<Slice> },
    /// In the Nix store, file by file.
    Store(StoreLayer),
}

impl Place {
    /// Whether it can be read alone, without reading all of its source.
    pub(super) fn is_at_hand(&self) -> bool {
        !matches!(self, Self::Member { spooled: None, .. })
    }
}

/// The bytes of an open file, from one on.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
}

impl Slice {
    pub(super) fn of(file: &Arc<File>, offset: u64) -> Self {
        let file = file.clone();
        Self { file, offset }
    }
}

impl Read for Slice {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Reads the layers an image's config lists.
pub(super) fn diff_ids(config: &[u8]) -> Result<Vec<Digest>, String> {
    let config: Map<String, Value> =
        serde_json::from_slice(config).map_err(|error| format!("its config: {error}"))?;
    let listed = config.get("rootfs").and_then(|rootfs| rootfs.get("diff_ids"));
    let listed = listed
        .and_then(Value::as_array)
        .ok_or("its config lists no layers")?;
    let digest =
        |value: &Value| Digest::parse(value.as_str().unwrap_or_default()).map_err(|error| error.to_string());
    listed.iter().map(digest).collect()
}
