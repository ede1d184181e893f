//! Where an image's layers are read from.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::cache::LayerCache;
use super::catalogue::{Catalogue, Layer, Place};
use super::error::LoadError;
use super::listing::Flawed;
use super::spool::Spool;
use super::{archive, script};
use crate::engine::Digest;
use crate::exec::Host;

/// An image outside the engine.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file as `docker save` and Nix's `buildLayeredImage` write it, packed with gzip or not.
    Archive(PathBuf),
    /// A program that prints such a file, as Nix's `streamLayeredImage` makes it.
    Script {
        /// The program.
        program: PathBuf,
        /// What starts it.
        host: Host,
    },
}

impl Source {
    /// The file it is read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Archive(path) => path,
            Self::Script { program, .. } => program,
        }
    }

    /// Reads what the image consists of, as far as the cache does not know it. Blocks. What is read anyway, and is none
    /// of the layers an engine has, is kept for sending.
    pub fn catalogue(&self, cache: &LayerCache, present: &[Vec<Digest>]) -> Result<Catalogue, LoadError> {
        let read = Spool::new(cache, present).map_err(Flawed::from);
        let read = read.and_then(|spool| match self {
            Self::Archive(path) => archive::catalogue(path, cache, spool),
            Self::Script { program, host } => script::catalogue(program, host, cache, spool),
        });
        read.map_err(|flaw| match flaw {
            Flawed::Unread(error) => LoadError::read(self, error),
            Flawed::NoImage(reason) => LoadError::NotAnImage {
                path: self.path().to_owned(),
                reason,
            },
        })
    }

    /// Hands over the bytes of these layers, in any order. Blocks.
    pub(super) fn read_layers(&self, layers: &[&Layer], each: &mut EachLayer<'_>) -> io::Result<()> {
        let mut streamed = Vec::new();
        for layer in layers {
            match &layer.place {
                Place::File(slice)
                | Place::Member {
                    spooled: Some(slice), ..
                } => {
                    each(layer, &mut slice.clone().take(layer.size))?;
                }
                Place::Store(paths) => each(layer, &mut paths.open()?)?,
                Place::Member { name, spooled: None } => streamed.push((name.as_str(), *layer)),
            }
        }
        if streamed.is_empty() {
            return Ok(());
        }
        match self {
            Self::Archive(path) => archive::read_members(archive::stream(path)?, streamed, each),
            Self::Script { program, host } => {
                archive::read_members(script::stream(program, host), streamed, each)
            }
        }
    }
}

/// Takes the bytes of one layer.
pub(super) type EachLayer<'a> = dyn FnMut(&Layer, &mut dyn Read) -> io::Result<()> + 'a;
