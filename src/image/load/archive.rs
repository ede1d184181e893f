//! Images in tar files, as `docker save` writes them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Component, Path};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tar::{Archive, Entries, EntryType};

use super::catalogue::{Catalogue, Encoding, Layer, Place, diff_ids};
use super::error::LoadError;
use super::source::EachLayer;
use crate::engine::Digest;

/// How much is read at once.
const CHUNK: usize = 256 * 1024;
/// A larger member is no config; one that is held in memory is never larger.
const LARGEST_JSON: u64 = 4 * 1024 * 1024;
const MANIFEST: &str = "manifest.json";

/// Reads what the image in this file consists of. In a plain file that costs only its headers.
pub(super) fn catalogue(path: &Path) -> Result<Catalogue, LoadError> {
    let members = match open(path) {
        Ok(Opened::Plain(file)) => {
            let mut archive = Archive::new(file);
            archive.entries_with_seek().and_then(Members::read)
        }
        Ok(Opened::Packed(stream)) => Archive::new(stream).entries().and_then(Members::read),
        Err(error) => Err(error),
    };
    catalogue_of(members, path)
}

/// Reads what the image consists of from a stream.
pub(super) fn catalogue_of_stream(stream: impl Read, path: &Path) -> Result<Catalogue, LoadError> {
    let members = Archive::new(stream).entries().and_then(Members::read);
    catalogue_of(members, path)
}

/// Hands over the bytes of these layers.
pub(super) fn read_layers(path: &Path, layers: &[&Layer], each: &mut EachLayer<'_>) -> io::Result<()> {
    match open(path)? {
        Opened::Packed(stream) => read_layers_of_stream(stream, layers, each),
        Opened::Plain(mut file) => layers.iter().try_for_each(|layer| {
            file.seek(SeekFrom::Start(layer.place.offset))?;
            let bytes = BufReader::with_capacity(CHUNK, &file).take(layer.size);
            each(layer, &mut { bytes })
        }),
    }
}

/// Hands over the bytes of these layers as they come by.
pub(super) fn read_layers_of_stream(
    stream: impl Read,
    layers: &[&Layer],
    each: &mut EachLayer<'_>,
) -> io::Result<()> {
    let mut waiting: BTreeMap<&str, &Layer> = layers
        .iter()
        .map(|layer| (&*layer.place.member, *layer))
        .collect();
    for entry in Archive::new(stream).entries()? {
        let mut entry = entry?;
        let name = normal(&entry.path()?);
        if entry.header().entry_type().is_file()
            && let Some(layer) = waiting.remove(name.as_str())
        {
            each(layer, &mut entry)?;
        }
    }
    match waiting.into_keys().next() {
        None => Ok(()),
        Some(name) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("`{name}` is gone from it"),
        )),
    }
}

enum Opened {
    Plain(File),
    Packed(Box<dyn Read>),
}

fn open(path: &Path) -> io::Result<Opened> {
    let mut file = File::open(path)?;
    let mut beginning = Vec::new();
    (&mut file).take(2).read_to_end(&mut beginning)?;
    file.rewind()?;
    Ok(match Encoding::of(&beginning) {
        Encoding::Plain => Opened::Plain(file),
        Encoding::Gzip => {
            let file = BufReader::with_capacity(CHUNK, file);
            Opened::Packed(Box::new(BufReader::with_capacity(
                CHUNK,
                MultiGzDecoder::new(file),
            )))
        }
    })
}

/// What a tar file holds, by name.
#[derive(Default)]
struct Members {
    files: BTreeMap<String, Member>,
    links: BTreeMap<String, String>,
    documents: BTreeMap<String, Vec<u8>>,
}

struct Member {
    size: u64,
    offset: u64,
    encoding: Encoding,
    /// Of packed layers, whose name for themselves is not that of their content.
    packed: Option<Digest>,
}

impl Members {
    fn read<R: Read>(entries: Entries<'_, R>) -> io::Result<Self> {
        let mut members = Self::default();
        for entry in entries {
            let mut entry = entry?;
            let name = normal(&entry.path()?);
            match entry.header().entry_type() {
                EntryType::Regular | EntryType::Continuous => members.take(name, &mut entry)?,
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

    fn take<R: Read>(&mut self, name: String, entry: &mut tar::Entry<'_, R>) -> io::Result<()> {
        let (size, offset) = (entry.size(), entry.raw_file_position());
        let mut beginning = Vec::new();
        entry.take(4).read_to_end(&mut beginning)?;
        let encoding = Encoding::of(&beginning);
        let packed = match encoding {
            Encoding::Plain => None,
            Encoding::Gzip => {
                let mut hasher = Sha256::new_with_prefix(&beginning);
                io::copy(&mut BufReader::with_capacity(CHUNK, &mut *entry), &mut hasher)?;
                Some(Digest::finish(hasher))
            }
        };
        let is_json = beginning.starts_with(b"{") || beginning.starts_with(b"[");
        if is_json && size <= LARGEST_JSON {
            entry.read_to_end(&mut beginning)?;
            self.documents.insert(name.clone(), beginning);
        }
        let member = Member {
            size,
            offset,
            encoding,
            packed,
        };
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

fn catalogue_of(members: io::Result<Members>, path: &Path) -> Result<Catalogue, LoadError> {
    let members = members.map_err(|source| LoadError::Read {
        path: path.to_owned(),
        source,
    })?;
    listed(&members).map_err(|reason| LoadError::NotAnImage {
        path: path.to_owned(),
        reason,
    })
}

/// Follows `manifest.json` to the config and the layers.
fn listed(members: &Members) -> Result<Catalogue, String> {
    let manifest = members
        .documents
        .get(MANIFEST)
        .ok_or("it holds no `manifest.json`")?;
    let images: Vec<Manifest> =
        serde_json::from_slice(manifest).map_err(|error| format!("`{MANIFEST}`: {error}"))?;
    let [image] = images.as_slice() else {
        return Err(format!("it holds {} images, not one", images.len()));
    };
    let config = members.documents.get(&normal(Path::new(&image.config)));
    let config = config.ok_or_else(|| format!("its config `{}` is missing", image.config))?;
    let diff_ids = diff_ids(config)?;
    if diff_ids.len() != image.layers.len() {
        let (listed, there) = (diff_ids.len(), image.layers.len());
        return Err(format!("its config lists {listed} layers, `{MANIFEST}` {there}"));
    }
    let layer = |(diff_id, name): (Digest, &String)| {
        let found = members
            .find(name)
            .ok_or_else(|| format!("its layer `{name}` is missing"));
        found.map(|(name, member)| Layer {
            blob: member.packed.clone().unwrap_or_else(|| diff_id.clone()),
            diff_id,
            size: member.size,
            encoding: member.encoding,
            place: Place {
                member: name.to_owned(),
                offset: member.offset,
            },
        })
    };
    Ok(Catalogue {
        config: config.clone(),
        layers: diff_ids
            .into_iter()
            .zip(&image.layers)
            .map(layer)
            .collect::<Result<_, _>>()?,
    })
}

/// One image in `manifest.json`.
#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "Config")]
    config: String,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

/// A name without `./` and `..`, so that two spellings of one member are the same.
fn normal(path: &Path) -> String {
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
