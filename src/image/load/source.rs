//! Where an image's layers are read from.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::catalogue::{Catalogue, Layer};
use super::error::LoadError;
use super::{archive, script};
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

    /// Reads what the image consists of. Blocks; a packed file and a program are read to their end.
    pub fn catalogue(&self) -> Result<Catalogue, LoadError> {
        match self {
            Self::Archive(path) => archive::catalogue(path),
            Self::Script { program, host } => script::catalogue(program, host),
        }
    }

    /// Hands over the bytes of these layers, in any order. Blocks.
    pub(super) fn read_layers(&self, layers: &[&Layer], each: &mut EachLayer<'_>) -> io::Result<()> {
        match self {
            Self::Archive(path) => archive::read_layers(path, layers, each),
            Self::Script { program, host } => script::read_layers(program, host, layers, each),
        }
    }
}

/// Takes the bytes of one layer.
pub(super) type EachLayer<'a> = dyn FnMut(&Layer, &mut dyn Read) -> io::Result<()> + 'a;
