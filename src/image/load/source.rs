//! Where an image's layers are read from.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::cache::LayerCache;
use super::contents::{ImageContents, ImageLayer, LayerLocation};
use super::error::LoadError;
use super::listing::ArchiveError;
use super::spool::Spool;
use super::{archive, program};
use crate::digest::Digest;
use crate::exec::Host;

/// An image outside the engine.
#[derive(Clone, Debug)]
pub enum LoadSource {
    /// An archive as `docker save` and Nix's `buildLayeredImage` write it, with or without gzip.
    Archive(PathBuf),
    /// A program that prints such an archive, as Nix's `streamLayeredImage` makes it.
    Program {
        /// The program.
        path: PathBuf,
        /// Starts it.
        host: Host,
    },
}

impl LoadSource {
    /// The archive or the program.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Archive(path) | Self::Program { path, .. } => path,
        }
    }

    /// Reads the image's config and layers. Blocks. A source that must be read to its end keeps the layers that are not
    /// in `present`, so that sending them needs no second read.
    pub fn read_contents(
        &self,
        cache: &LayerCache,
        present: &[Vec<Digest>],
    ) -> Result<ImageContents, LoadError> {
        let spool = Spool::new(cache, present).map_err(ArchiveError::from);
        let contents = spool.and_then(|spool| match self {
            Self::Archive(path) => archive::read_file(path, spool),
            Self::Program { path, host } => program::read(path, host, cache, spool),
        });
        contents.map_err(|error| match error {
            ArchiveError::Io(error) => LoadError::read(self, error),
            ArchiveError::NotAnImage(reason) => LoadError::NotAnImage {
                path: self.path().to_owned(),
                reason,
            },
        })
    }

    /// Passes the bytes of these layers to `each`, in any order. Blocks.
    pub(super) fn read_layers(&self, layers: &[&ImageLayer], each: &mut LayerReader<'_>) -> io::Result<()> {
        let mut streamed = Vec::new();
        for layer in layers {
            match &layer.location {
                LayerLocation::File(slice) => each(layer, &mut slice.clone().take(layer.size))?,
                LayerLocation::Store(paths) => each(layer, &mut paths.open()?)?,
                LayerLocation::Member(name) => streamed.push((name.as_str(), *layer)),
            }
        }
        if streamed.is_empty() {
            return Ok(());
        }
        match self {
            Self::Archive(path) => archive::read_members(archive::stream(path)?, streamed, each),
            Self::Program { path, host } => {
                archive::read_members(program::stream(path, host), streamed, each)
            }
        }
    }
}

/// Consumes the bytes of one layer.
pub(super) type LayerReader<'a> = dyn FnMut(&ImageLayer, &mut dyn Read) -> io::Result<()> + 'a;
