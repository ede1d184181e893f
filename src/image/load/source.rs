//! Where an image's layers are read from.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::cache::LayerCache;
use super::contents::{ImageContents, ImageLayer, LayerLocation};
use super::listing::ArchiveError;
use super::spool::Spool;
use super::{archive, program};
use crate::digest::Digest;
use crate::exec::Host;
use crate::image::error::ImageError;

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
    ) -> Result<ImageContents, ImageError> {
        let spool = Spool::new(cache, present).map_err(ArchiveError::from);
        let contents = spool.and_then(|spool| match self {
            Self::Archive(path) => archive::read_file(path, spool),
            Self::Program { path, host } => program::read(path, host, cache, spool),
        });
        contents.map_err(|error| match error {
            ArchiveError::Io(error) => self.unreadable(error),
            ArchiveError::NotAnImage(reason) => {
                let path = self.path().display();
                ImageError::failed(format!("`{path}` is not a loadable image: {reason}"))
                    .with_hint(BUILD_AGAIN)
            }
        })
    }

    pub(super) fn unreadable(&self, error: io::Error) -> ImageError {
        ImageError::io("read the image in", self.path())(error).with_hint(BUILD_AGAIN)
    }

    /// Passes the bytes of these layers to `each`, in any order. Blocks.
    pub(super) fn read_layers(&self, layers: &[&ImageLayer], each: &mut LayerSink<'_>) -> io::Result<()> {
        let mut streamed = Vec::new();
        for layer in layers {
            match &layer.location {
                LayerLocation::File(slice) => {
                    let mut slice = slice.clone().take(layer.size);
                    each(layer, &mut |out| archive::copy(&mut slice, out))?;
                }
                LayerLocation::Store(paths) => each(layer, &mut |out| paths.write(out))?,
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

/// Takes a layer, and a function that writes its bytes and returns their number.
pub(super) type LayerSink<'a> = dyn FnMut(&ImageLayer, &mut LayerWriter<'_>) -> io::Result<()> + 'a;
pub(super) type LayerWriter<'a> = dyn FnMut(&mut dyn Write) -> io::Result<u64> + 'a;

const BUILD_AGAIN: &str = "build the image again";
