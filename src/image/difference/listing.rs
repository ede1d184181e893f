//! The files in the layers of an image.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use sha2::{Digest as _, Sha256};
use tar::Archive;

use crate::digest::{Digest, HashingReader};

/// The files of a layer, by path.
pub(super) type LayerListing = BTreeMap<String, LayerFile>;

/// A file of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayerFile {
    pub(super) content: Digest,
    pub(super) attributes: FileAttributes,
    pub(super) time: u64,
}

/// The kind, mode and owner of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileAttributes {
    kind: u8,
    mode: u32,
    owner: (u64, u64),
}

/// Reads an archive of `docker save`, and lists the files of these layers. A layer is found by the digest of its bytes,
/// whatever its name is. Compressed layers are skipped.
pub(super) fn read_listings(
    image: &mut dyn Read,
    wanted: &BTreeSet<Digest>,
) -> io::Result<BTreeMap<Digest, LayerListing>> {
    let mut found = BTreeMap::new();
    for member in Archive::new(image).entries()? {
        let mut member = HashingReader::new(member?);
        let listing = list(&mut member);
        let digest = member.finish()?;
        if let Ok(listing) = listing
            && wanted.contains(&digest)
        {
            found.insert(digest, listing);
        }
    }
    Ok(found)
}

fn list(layer: &mut dyn Read) -> io::Result<LayerListing> {
    let mut files = LayerListing::new();
    for file in Archive::new(layer).entries()? {
        let mut file = file?;
        let path = String::from_utf8_lossy(&file.path_bytes()).into_owned();
        let header = file.header();
        let attributes = FileAttributes {
            kind: header.entry_type().as_byte(),
            mode: header.mode()?,
            owner: (header.uid()?, header.gid()?),
        };
        let time = header.mtime()?;
        let link = file.link_name_bytes().map(std::borrow::Cow::into_owned);
        let mut hasher = Sha256::new_with_prefix(link.unwrap_or_default());
        io::copy(&mut file, &mut hasher)?;
        let entry = LayerFile {
            content: Digest::from_hasher(hasher),
            attributes,
            time,
        };
        files.insert(path, entry);
    }
    Ok(files)
}
