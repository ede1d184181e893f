//! Sends a build context: exactly the bytes that were hashed.

use std::fs::File;
use std::io::{self, Read, Write};

use tar::{Builder, EntryType, Header};

use super::{BuildContext, ContextEntry, ContextEntryKind, FileMode};
use crate::digest::{Digest, HashingReader};
use crate::engine::TarStream;

/// A context with nothing but a `Dockerfile`.
pub(in crate::image) fn lone_dockerfile(text: &str) -> TarStream {
    let text = text.to_owned();
    TarStream::written_by(move |out| {
        let mut tar = Builder::new(out);
        append_dockerfile(&mut tar, "Dockerfile", &text)?;
        tar.finish()
    })
}

impl BuildContext {
    /// The context with its Dockerfile, which is sent even if `.dockerignore` excludes it. The stream fails if a file
    /// changed since it was hashed.
    pub(in crate::image) fn with_dockerfile(&self, name: &str, text: &str) -> TarStream {
        let (context, name, text) = (self.clone(), name.to_owned(), text.to_owned());
        TarStream::written_by(move |out| {
            let mut tar = Builder::new(out);
            for entry in &context.entries {
                context.append(&mut tar, entry)?;
            }
            match context.entries.iter().find(|entry| entry.path == name) {
                Some(entry) => entry.verify(Digest::sha256(text.as_bytes()))?,
                None => append_dockerfile(&mut tar, &name, &text)?,
            }
            tar.finish()
        })
    }

    fn append(&self, tar: &mut Tar<'_>, entry: &ContextEntry) -> io::Result<()> {
        match &entry.kind {
            ContextEntryKind::Directory => {
                let mut header = header(EntryType::Directory, 0o755, 0);
                tar.append_data(&mut header, &entry.path, io::empty())
            }
            ContextEntryKind::Link { target } => {
                tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), &entry.path, target)
            }
            ContextEntryKind::File { mode, size, .. } => {
                let file = File::open(self.root.join(&entry.path))?;
                let mut hashed = HashingReader::new(file.take(*size));
                let mut header = header(EntryType::Regular, mode.bits(), *size);
                tar.append_data(&mut header, &entry.path, &mut hashed)?;
                entry.verify(hashed.finish()?)
            }
        }
    }
}

impl ContextEntry {
    /// Fails if the content is not the one that was hashed.
    fn verify(&self, found: Digest) -> io::Result<()> {
        match &self.kind {
            ContextEntryKind::File { digest, .. } if *digest == found => Ok(()),
            _ => {
                let message = format!("`{}` changed while the image was being built", self.path);
                Err(io::Error::new(io::ErrorKind::InvalidData, message))
            }
        }
    }
}

impl FileMode {
    fn bits(self) -> u32 {
        match self {
            Self::Plain => 0o644,
            Self::Executable => 0o755,
        }
    }
}

type Tar<'a> = Builder<&'a mut dyn Write>;

fn append_dockerfile(tar: &mut Tar<'_>, name: &str, text: &str) -> io::Result<()> {
    let mut header = header(EntryType::Regular, 0o644, text.len() as u64);
    tar.append_data(&mut header, name, text.as_bytes())
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
