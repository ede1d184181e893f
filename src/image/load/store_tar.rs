//! Layers of store paths, byte for byte as `streamLayeredImage` makes them with Python's `tarfile`.
//!
//! The format is pax: a path that is long or not ASCII gets a header of its own before the usual one.
//! [`super::format_probe`] checks that a given program writes the same bytes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tar::{EntryType, Header};

use super::archive::CHUNK;

const BLOCK: u64 = 512;
const RECORD: u64 = 20 * BLOCK;
/// The largest numbers that fit into the fields of a header. Larger ones need a pax header, which is not supported.
const LARGEST_SIZE: u64 = 0o77_777_777_777;
const LARGEST_ID: u64 = 0o777_7777;

/// The store paths of a layer, and everything else that its bytes depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreLayer {
    pub(super) paths: Vec<PathBuf>,
    pub(super) metadata: EntryMetadata,
}

/// The owner and time that every file in a layer gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EntryMetadata {
    /// Seconds since 1970.
    pub(super) mtime: u64,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) user: String,
    pub(super) group: String,
}

impl StoreLayer {
    /// Writes the layer's tar, and returns its size. Fails for what cannot be written the same way, such as a file of
    /// 8 GiB.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<u64> {
        let EntryMetadata { mtime, uid, gid, .. } = self.metadata;
        if mtime > LARGEST_SIZE || uid.max(gid) > LARGEST_ID {
            return Err(unsupported("its owner or its time"));
        }
        let mut entries = vec![
            StoreEntry::directory("/nix/"),
            StoreEntry::directory("/nix/store/"),
        ];
        for path in &self.paths {
            add(path, &mut entries)?;
        }
        let mut out = BufWriter::with_capacity(CHUNK, out);
        let mut written = 0;
        for entry in &entries {
            let header = entry.header(&self.metadata);
            out.write_all(&header)?;
            written += header.len() as u64;
            if entry.size > 0 {
                written += io::copy(&mut File::open(&entry.name)?.take(entry.size), &mut out)?;
                written += zeros(entry.size.next_multiple_of(BLOCK) - entry.size, &mut out)?;
            }
        }
        written += zeros((written + 2 * BLOCK).next_multiple_of(RECORD) - written, &mut out)?;
        out.flush()?;
        Ok(written)
    }
}

struct StoreEntry {
    /// Begins with a slash; that of a directory also ends with one.
    name: String,
    mode: u32,
    kind: EntryType,
    /// The size of a file, else 0.
    size: u64,
    /// The target of a link, else empty.
    link: String,
}

/// Adds a path and everything below it, sorted by path components.
fn add(path: &Path, entries: &mut Vec<StoreEntry>) -> io::Result<()> {
    let entry = StoreEntry::read(path)?;
    let is_directory = entry.kind.is_dir();
    entries.push(entry);
    if is_directory {
        let found: io::Result<Vec<_>> = fs::read_dir(path)?.map(|found| Ok(found?.path())).collect();
        let mut found = found?;
        // Python sorts names by code point, which is byte order for UTF-8. Other names are rejected.
        found.sort();
        for below in found {
            add(&below, entries)?;
        }
    }
    Ok(())
}

impl StoreEntry {
    fn directory(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            mode: 0o755,
            kind: EntryType::Directory,
            size: 0,
            link: String::new(),
        }
    }

    fn read(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        let mut entry = Self {
            mode: metadata.permissions().mode() & 0o7777,
            ..Self::directory(text(path)?)
        };
        if metadata.is_dir() {
            entry.name.push('/');
        } else if metadata.is_symlink() {
            entry.kind = EntryType::Symlink;
            text(&fs::read_link(path)?)?.clone_into(&mut entry.link);
        } else if metadata.is_file() && metadata.len() <= LARGEST_SIZE {
            entry.kind = EntryType::Regular;
            entry.size = metadata.len();
        } else {
            return Err(unsupported(&format!("`{}`", path.display())));
        }
        Ok(entry)
    }

    /// The blocks before the content: the pax header if one is needed, and the usual one.
    fn header(&self, metadata: &EntryMetadata) -> Vec<u8> {
        let fields = [
            ("path", &self.name, 100),
            ("linkpath", &self.link, 100),
            ("uname", &metadata.user, 32),
            ("gname", &metadata.group, 32),
        ];
        let records: String = fields
            .into_iter()
            .filter(|(_, value, longest)| !value.is_ascii() || value.len() > *longest)
            .map(|(keyword, value, _)| record(keyword, value))
            .collect();
        let mut bytes = Vec::new();
        if !records.is_empty() {
            let extended = Self {
                mode: 0,
                kind: EntryType::XHeader,
                size: records.len() as u64,
                ..Self::directory("././@PaxHeader")
            };
            bytes.extend(extended.block(&EntryMetadata::default()));
            bytes.extend(records.into_bytes());
            bytes.resize(bytes.len().next_multiple_of(512), 0);
        }
        bytes.extend(self.block(metadata));
        bytes
    }

    fn block(&self, metadata: &EntryMetadata) -> [u8; 512] {
        let mut header = Header::new_ustar();
        header.set_mode(self.mode);
        header.set_uid(metadata.uid);
        header.set_gid(metadata.gid);
        header.set_size(self.size);
        header.set_mtime(metadata.mtime);
        header.set_entry_type(self.kind);
        if let Some(fields) = header.as_ustar_mut() {
            put_text(&mut fields.name, &self.name);
            put_text(&mut fields.linkname, &self.link);
            put_text(&mut fields.uname, &metadata.user);
            put_text(&mut fields.gname, &metadata.group);
            fields.cksum = *b"        ";
        }
        // Unlike `tar`, Python writes six digits, a zero byte and a space.
        let sum: u32 = header.as_bytes().iter().copied().map(u32::from).sum();
        header.as_old_mut().cksum[..7].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        *header.as_bytes()
    }
}

/// `<length> <keyword>=<value>`, where the length includes its own digits.
fn record(keyword: &str, value: &str) -> String {
    let rest = keyword.len() + value.len() + 3;
    let mut length = rest;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    format!("{length} {keyword}={value}\n")
}

/// Text truncated to its field, with a question mark for each character that is not ASCII.
fn put_text(field: &mut [u8], text: &str) {
    for (byte, c) in field.iter_mut().zip(text.chars()) {
        *byte = u8::try_from(c).ok().filter(u8::is_ascii).unwrap_or(b'?');
    }
}

fn zeros(length: u64, out: &mut impl Write) -> io::Result<u64> {
    io::copy(&mut io::repeat(0).take(length), out)
}

fn text(path: &Path) -> io::Result<&str> {
    path.to_str()
        .ok_or_else(|| unsupported(&format!("`{}`", path.display())))
}

fn unsupported(what: &str) -> io::Error {
    let message = format!("{what} is not supported in a layer");
    io::Error::new(io::ErrorKind::Unsupported, message)
}
