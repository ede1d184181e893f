//! What a tar file with an image holds, and what it says of itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path};
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tar::{Entries, EntryType};
use thiserror::Error;

use super::catalogue::{Catalogue, Encoding, Layer, Place, Slice, diff_ids};
use super::spool::Spool;
use crate::engine::Digest;

/// How much is read at once.
const CHUNK: usize = 256 * 1024;
/// A larger member is no config; one that is held in memory is never larger.
const LARGEST_JSON: u64 = 4 * 1024 * 1024;
const MANIFEST: &str = "manifest.json";

/// Why what was read is not taken for an image.
#[derive(Debug, Error)]
pub(super) enum Flawed {
    #[error(transparent)]
    Unread(#[from] io::Error),
    #[error("{0}")]
    NoImage(String),
}

impl From<String> for Flawed {
    fn from(reason: String) -> Self {
        Self::NoImage(reason)
    }
}

/// What a tar file holds, by name.
#[derive(Default)]
pub(super) struct Members {
    files: BTreeMap<String, Member>,
    links: BTreeMap<String, String>,
    documents: BTreeMap<String, Vec<u8>>,
}

struct Member {
    size: u64,
    /// Where its bytes begin: in the tar file, or in the spool if it went there.
    offset: Option<u64>,
    encoding: Encoding,
    /// Of packed layers, whose name for themselves is not that of their content.
    packed: Option<Digest>,
}

impl Members {
    /// Reads them all. With a spool, what is needed later goes there; without one, a member is where it is.
    pub(super) fn read<R: Read>(entries: Entries<'_, R>, mut spool: Option<&mut Spool>) -> io::Result<Self> {
        let mut members = Self::default();
        for entry in entries {
            let mut entry = entry?;
            let name = normal(&entry.path()?);
            match entry.header().entry_type() {
                EntryType::Regular | EntryType::Continuous => {
                    members.take(name, &mut entry, spool.as_deref_mut())?;
                }
                EntryType::Symlink | EntryType::Link => {
                    let link = entry.link_name()?.unwrap_or_default();
                    let beside = Path::new(&name).parent().unwrap_or(Path::new(""));
                    let is_hard = entry.header().entry_type() == EntryType::Link;
                    let target = if is_hard {
                        normal(&link)
                    } else {
                        normal(&beside.join(link))
                    };
                    members.links.insert(name, target);
                }
                _ => {}
            }
        }
        Ok(members)
    }

    fn take<R: Read>(
        &mut self,
        name: String,
        entry: &mut tar::Entry<'_, R>,
        spool: Option<&mut Spool>,
    ) -> io::Result<()> {
        let (size, position) = (entry.size(), entry.raw_file_position());
        let mut beginning = Vec::new();
        entry.take(4).read_to_end(&mut beginning)?;
        let encoding = Encoding::of(&beginning);
        let is_json = beginning.starts_with(b"{") || beginning.starts_with(b"[");
        let mut member = Member {
            size,
            offset: Some(position),
            encoding,
            packed: None,
        };
        if is_json && size <= LARGEST_JSON {
            entry.read_to_end(&mut beginning)?;
            self.documents.insert(name.clone(), beginning);
        } else {
            let mut bytes = Hashing {
                bytes: io::Cursor::new(beginning).chain(BufReader::with_capacity(CHUNK, entry)),
                hasher: (encoding == Encoding::Gzip).then(Sha256::new),
            };
            if let Some(spool) = spool {
                member.offset = spool.take(&name, &mut bytes)?;
            }
            member.packed = bytes.finish()?;
        }
        self.files.insert(name, member);
        Ok(())
    }

    /// The member of this name, through links; a layer that occurs twice is often stored once.
    fn find(&self, name: &str) -> Option<(&str, &Member)> {
        let mut name = normal(Path::new(name));
        for _ in 0..8 {
            if let Some((name, member)) = self.files.get_key_value(&name) {
                return Some((name, member));
            }
            name = self.links.get(&name)?.clone();
        }
        None
    }
}

/// Where the bytes of members can be read again.
pub(super) enum Bytes {
    /// In the archive itself.
    Archive(Arc<File>),
    /// On the spool, as far as they went there.
    Spool(Arc<File>),
    /// Nowhere but in another stream.
    Stream,
}

/// Follows `manifest.json` to the config and the layers.
pub(super) fn catalogue(members: &Members, bytes: &Bytes) -> Result<Catalogue, Flawed> {
    let manifest = members.documents.get(MANIFEST);
    let manifest = manifest.ok_or_else(|| "it holds no `manifest.json`".to_owned())?;
    let images: Vec<Manifest> =
        serde_json::from_slice(manifest).map_err(|error| format!("`{MANIFEST}`: {error}"))?;
    let [image] = images.as_slice() else {
        return Err(format!("it holds {} images, not one", images.len()).into());
    };
    let config = members.documents.get(&normal(Path::new(&image.config)));
    let config = config.ok_or_else(|| format!("its config `{}` is missing", image.config))?;
    let diff_ids = diff_ids(config)?;
    if diff_ids.len() != image.layers.len() {
        let (listed, there) = (diff_ids.len(), image.layers.len());
        return Err(format!("its config lists {listed} layers, `{MANIFEST}` {there}").into());
    }
    let layers = diff_ids.into_iter().zip(&image.layers).map(|(diff_id, name)| {
        let found = members.find(name);
        let (name, member) = found.ok_or_else(|| format!("its layer `{name}` is missing"))?;
        Ok(member.layer(name, diff_id, bytes))
    });
    Ok(Catalogue {
        config: config.clone(),
        layers: layers.collect::<Result<_, Flawed>>()?,
    })
}

impl Member {
    fn layer(&self, name: &str, diff_id: Digest, bytes: &Bytes) -> Layer {
        let name = name.to_owned();
        let slice = |file| self.offset.map(|offset| Slice::of(file, offset));
        let place = match bytes {
            Bytes::Archive(file) => slice(file).map(Place::File),
            Bytes::Spool(file) => slice(file).map(|slice| Place::Member {
                name: name.clone(),
                spooled: Some(slice),
            }),
            Bytes::Stream => None,
        };
        Layer {
            blob: self.packed.clone().unwrap_or_else(|| diff_id.clone()),
            diff_id,
            size: self.size,
            encoding: self.encoding,
            place: place.unwrap_or(Place::Member { name, spooled: None }),
        }
    }
}

/// One image in `manifest.json`.
#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "Config")]
    config: String,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

/// Bytes that may be hashed as they are read.
struct Hashing<R> {
    bytes: R,
    hasher: Option<Sha256>,
}

impl<R: Read> Hashing<R> {
    /// The digest of all bytes, if it was wanted.
    fn finish(mut self) -> io::Result<Option<Digest>> {
        if self.hasher.is_some() {
            io::copy(&mut self, &mut io::sink())?;
        }
        Ok(self.hasher.map(Digest::from_hasher))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..read]);
        }
        Ok(read)
    }
}

/// A name without `./` and `..`, so that two spellings of one member are the same.
pub(super) fn normal(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::ParentDir => drop(parts.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    parts.join("/")
}
