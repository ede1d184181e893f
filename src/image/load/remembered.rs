//! What is remembered of an archive: its members, so that it is not searched again.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cache::LayerCache;
use super::catalogue::{Catalogue, Encoding, Layer, Place, Slice};
use crate::engine::Digest;
use crate::remember::Look;

/// An archive that may have been read before.
pub(super) struct Remembered<'a> {
    key: Digest,
    look: Look,
    file: &'a Arc<File>,
    cache: &'a LayerCache,
}

impl<'a> Remembered<'a> {
    /// The archive at this path, which is open.
    pub(super) fn of(path: &Path, file: &'a Arc<File>, cache: &'a LayerCache) -> io::Result<Self> {
        Ok(Self {
            key: Digest::sha256(path.as_os_str().as_bytes()),
            look: Look::of(&file.metadata()?),
            file,
            cache,
        })
    }

    /// What it consists of, if it did not change since that was kept.
    pub(super) fn find(&self) -> Option<Catalogue> {
        let stored: StoredArchive = self.cache.find("archive", &self.key)?;
        if stored.look != self.look || !self.cache.is_settled(&self.look) {
            return None;
        }
        let layers = stored.layers.into_iter().map(|layer| layer.read(self.file));
        Some(Catalogue {
            config: stored.config.into_bytes(),
            layers: layers.collect(),
        })
    }

    pub(super) fn keep(&self, catalogue: &Catalogue) {
        let Ok(config) = str::from_utf8(&catalogue.config) else {
            return;
        };
        let layers = catalogue.layers.iter().map(StoredLayer::of);
        if let Some(layers) = layers.collect()
            && self.cache.is_settled(&self.look)
        {
            let stored = StoredArchive {
                look: self.look,
                config: config.to_owned(),
                layers,
            };
            self.cache.keep("archive", &self.key, &stored);
        }
    }
}

#[derive(Serialize, Deserialize)]
struct StoredArchive {
    look: Look,
    config: String,
    layers: Vec<StoredLayer>,
}

#[derive(Serialize, Deserialize)]
struct StoredLayer {
    diff_id: Digest,
    blob: Digest,
    size: u64,
    encoding: StoredEncoding,
    place: StoredPlace,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredEncoding {
    Plain,
    Gzip,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredPlace {
    /// In the archive itself, from this byte on.
    Offset(u64),
    /// In the archive once it is unpacked.
    Member(String),
}

impl StoredLayer {
    fn of(layer: &Layer) -> Option<Self> {
        Some(Self {
            diff_id: layer.diff_id.clone(),
            blob: layer.blob.clone(),
            size: layer.size,
            encoding: match layer.encoding {
                Encoding::Plain => StoredEncoding::Plain,
                Encoding::Gzip => StoredEncoding::Gzip,
            },
            place: match &layer.place {
                Place::File(slice) => StoredPlace::Offset(slice.offset),
                Place::Member { name, .. } => StoredPlace::Member(name.clone()),
                Place::Store(_) => return None,
            },
        })
    }

    fn read(self, archive: &Arc<File>) -> Layer {
        Layer {
            diff_id: self.diff_id,
            blob: self.blob,
            size: self.size,
            encoding: match self.encoding {
                StoredEncoding::Plain => Encoding::Plain,
                StoredEncoding::Gzip => Encoding::Gzip,
            },
            place: match self.place {
                StoredPlace::Offset(offset) => Place::File(Slice::of(archive, offset)),
                StoredPlace::Member(name) => Place::Member { name, spooled: None },
            },
        }
    }
}
