//! A temporary file for layers of a stream, so that the stream is read only once.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use super::archive::copy;
use super::cache::LayerCache;
use crate::digest::Digest;

/// Keeps the layers that an engine may lack.
pub(super) struct Spool {
    file: File,
    length: u64,
    present: BTreeSet<Digest>,
}

impl Spool {
    /// A spool for an engine that has these layers.
    pub(super) fn new(cache: &LayerCache, present: &[Vec<Digest>]) -> io::Result<Self> {
        Ok(Self {
            file: cache.scratch_file()?,
            length: 0,
            present: present.iter().flatten().copied().collect(),
        })
    }

    /// Copies a member of the stream, and returns its offset in the file. A member named after a layer that the engine
    /// has is skipped; if it is needed after all, the stream is read again.
    pub(super) fn take(&mut self, name: &str, bytes: &mut dyn Read) -> io::Result<Option<u64>> {
        let is_present = |part: &str| Digest::parse(part).is_ok_and(|digest| self.present.contains(&digest));
        if name.split(['/', '.']).any(is_present) {
            return Ok(None);
        }
        let offset = self.length;
        self.length += copy(bytes, &mut self.file)?;
        Ok(Some(offset))
    }

    pub(super) fn into_file(self) -> Arc<File> {
        Arc::new(self.file)
    }
}
