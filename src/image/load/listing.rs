//! The members of a tar archive that holds an image.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path};
use std::sync::Arc;

use serde::Deserialize;
use tar::{Entries, EntryType};
use thiserror::Error;

use super::archive::CHUNK;
use super::contents::{FileSlice, ImageContents, ImageLayer, LayerEncoding, LayerLocation, diff_ids};
use super::spool::Spool;
use crate::digest::{Digest, HashingReader};
use crate::text::counted;

/// The largest JSON document that is kept in memory.
const LARGEST_JSON: u64 = 4 * 1024 * 1024;
const MANIFEST: &str = "manifest.json";

/// Why an archive cannot be read as an image.
#[derive(Debug, Error)]
pub(super) enum ArchiveError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    NotAnImage(String),
}

impl From<String> for ArchiveError {
    fn from(reason: String) -> Self {
        Self::NotAnImage(reason)
    }
}

/// The members of an archive, by name.
#[derive(Default)]
pub(super) struct ArchiveMembers {
    files: BTreeMap<String, ArchiveMember>,
    links: BTreeMap<String, String>,
    documents: BTreeMap<String, Vec<u8>>,
}

struct ArchiveMember {
    size: u64,
    /// Where its bytes begin: in the spool, or in the archive if there is no spool. `None`: not in the spool.
    offset: Option<u64>,
    encoding: LayerEncoding,
    /// The digest of a compressed layer's bytes. That of a plain one is its diff id.
    compressed: Option<Digest>,
}

impl ArchiveMembers {
    /// Reads all members. With a spool, layers that may have to be sent are copied there.
    pub(super) fn read<R: Read>(entries: Entries<'_, R>, mut spool: Option<&mut Spool>) -> io::Result<Self> {
        let mut members = Self::default();
        for entry in entries {
            let mut entry = entry?;
            let name = normalize(&entry.path()?);
            match entry.header().entry_type() {
                EntryType::Regular | EntryType::Continuous => {
                    members.add_file(name, &mut entry, spool.as_deref_mut())?;
                }
                kind @ (EntryType::Symlink | EntryType::Link) => {
                    let link = entry.link_name()?.unwrap_or_default();
                    let target = if kind == EntryType::Link {
                        normalize(&link)
                    } else {
                        let beside = Path::new(&name).parent().unwrap_or(Path::new(""));
                        normalize(&beside.join(link))
                    };
                    members.links.insert(name, target);
                }
                _ => {}
            }
        }
        Ok(members)
    }

    fn add_file<R: Read>(
        &mut self,
        name: String,
        entry: &mut tar::Entry<'_, R>,
        spool: Option<&mut Spool>,
    ) -> io::Result<()> {
        let (size, position) = (entry.size(), entry.raw_file_position());
        let mut beginning = Vec::new();
        entry.take(4).read_to_end(&mut beginning)?;
        let encoding = LayerEncoding::detect(&beginning);
        let is_json = beginning.starts_with(b"{") || beginning.starts_with(b"[");
        let mut member = ArchiveMember {
            size,
            offset: Some(position),
            encoding,
            compressed: None,
        };
        if is_json && size <= LARGEST_JSON {
            entry.read_to_end(&mut beginning)?;
            self.documents.insert(name.clone(), beginning);
        } else {
            let mut bytes = io::Cursor::new(beginning).chain(BufReader::with_capacity(CHUNK, entry));
            let copy = |bytes: &mut dyn Read| match spool {
                Some(spool) => spool.take(&name, bytes),
                None => Ok(Some(position)),
            };
            if encoding == LayerEncoding::Gzip {
                let mut hashing = HashingReader::new(bytes);
                member.offset = copy(&mut hashing)?;
                member.compressed = Some(hashing.finish()?);
            } else {
                member.offset = copy(&mut bytes)?;
            }
        }
        self.files.insert(name, member);
        Ok(())
    }

    /// Finds a member by name and follows links: a layer that occurs twice is often stored once.
    fn find(&self, name: &str) -> Option<(&str, &ArchiveMember)> {
        let mut name = normalize(Path::new(name));
        for _ in 0..8 {
            if let Some((name, member)) = self.files.get_key_value(&name) {
                return Some((name, member));
            }
            name = self.links.get(&name)?.clone();
        }
        None
    }
}

/// Follows `manifest.json` to the config and the layers. `file` is the archive or the spool that offsets refer to; without
/// it, layers can only be read from the stream again.
pub(super) fn contents(
    members: &ArchiveMembers,
    file: Option<&Arc<File>>,
) -> Result<ImageContents, ArchiveError> {
    let manifest = members.documents.get(MANIFEST);
    let manifest = manifest.ok_or_else(|| format!("it has no `{MANIFEST}`"))?;
    let images: Vec<ArchiveManifest> =
        serde_json::from_slice(manifest).map_err(|error| format!("`{MANIFEST}` is not valid: {error}"))?;
    let [image] = images.as_slice() else {
        return Err(format!("expected one image, found {}", images.len()).into());
    };
    let config = members.documents.get(&normalize(Path::new(&image.config)));
    let config = config.ok_or_else(|| format!("its config `{}` is missing", image.config))?;
    let diff_ids = diff_ids(config)?;
    if diff_ids.len() != image.layers.len() {
        let (listed, there) = (counted(diff_ids.len(), "layer"), image.layers.len());
        return Err(format!("its config lists {listed}, `{MANIFEST}` lists {there}").into());
    }
    let layers = diff_ids.into_iter().zip(&image.layers).map(|(diff_id, name)| {
        let found = members.find(name);
        let (name, member) = found.ok_or_else(|| format!("its layer `{name}` is missing"))?;
        Ok(member.to_layer(name, diff_id, file))
    });
    Ok(ImageContents {
        config: config.clone(),
        layers: layers.collect::<Result<_, ArchiveError>>()?,
    })
}

impl ArchiveMember {
    fn to_layer(&self, name: &str, diff_id: Digest, file: Option<&Arc<File>>) -> ImageLayer {
        let slice = file.zip(self.offset).map(|(file, offset)| FileSlice {
            file: file.clone(),
            offset,
        });
        ImageLayer {
            blob: self.compressed.unwrap_or(diff_id),
            diff_id,
            size: self.size,
            encoding: self.encoding,
            location: slice.map_or_else(|| LayerLocation::Member(name.to_owned()), LayerLocation::File),
        }
    }
}

/// One image in `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ArchiveManifest {
    config: String,
    layers: Vec<String>,
}

/// A path without `.` and `..`, so that two spellings of one member are equal.
pub(super) fn normalize(path: &Path) -> String {
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
