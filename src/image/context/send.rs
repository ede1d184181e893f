//! Sends a build context: exactly the bytes that were hashed.

use std::fs::File;
use std::io::{self, Read, Write};

use tar::{Builder, EntryType, Header};

use super::{BuildContext, ContextEntry};
use crate::digest::{Digest, HashingReader};
use crate::engine::{ContentArchive, TarStream};

impl BuildContext {
    /// The context with its Dockerfile, which is sent even if `.dockerignore` excludes it. The stream fails if a file
    /// changed since it was hashed.
    pub(in crate::image) fn with_dockerfile(&self, name: &str, text: &str) -> TarStream {
        let (context, name, text) = (self.clone(), name.to_owned(), text.to_owned());
        TarStream::written_by(move |out| {
            let mut tar = Builder::new(out);
            for (path, entry) in &context.entries {
                context.append(&mut tar, path, entry)?;
            }
            if let Some(entry) = context.entries.get(&name) {
                verify(&name, entry, Digest::sha256(text.as_bytes()))?;
            } else {
                let mut header = header(EntryType::Regular, 0o644, text.len() as u64);
                tar.append_data(&mut header, &name, text.as_bytes())?;
            }
            tar.finish()
        })
    }

    /// The archive of a context alone.
    pub(in crate::image) fn archive(&self) -> ContentArchive {
        let context = self.clone();
        ContentArchive::new(self.digest(), self.size(), move |out| {
            let mut tar = Builder::new(out);
            for (path, entry) in &context.entries {
                context.append(&mut tar, path, entry)?;
            }
            tar.finish()
        })
    }

    fn append(&self, tar: &mut Builder<&mut dyn Write>, path: &str, entry: &ContextEntry) -> io::Result<()> {
        match entry {
            ContextEntry::Directory => {
                tar.append_data(&mut header(EntryType::Directory, 0o755, 0), path, io::empty())
            }
            ContextEntry::Link { target } => {
                tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)
            }
            ContextEntry::File {
                is_executable, size, ..
            } => {
                let file = File::open(self.root.join(path))?;
                let mut hashed = HashingReader::new(file.take(*size));
                let mode = if *is_executable { 0o755 } else { 0o644 };
                tar.append_data(&mut header(EntryType::Regular, mode, *size), path, &mut hashed)?;
                verify(path, entry, hashed.finish()?)
            }
        }
    }
}

/// Fails if the content is not the one that was hashed.
fn verify(path: &str, entry: &ContextEntry, found: Digest) -> io::Result<()> {
    match entry {
        ContextEntry::File { digest, .. } if *digest == found => Ok(()),
        _ => {
            let message = format!("`{path}` changed while the image was being built");
            Err(io::Error::new(io::ErrorKind::InvalidData, message))
        }
    }
}

/// A header owned by root, without a time.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}
