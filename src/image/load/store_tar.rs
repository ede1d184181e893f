//! Layers of store paths, byte for byte as `streamLayeredImage` makes them with Python's `tarfile`.
//!
//! The format is pax: a path that is long or not ASCII gets a header of its own before the usual one.
//! [`super::format_probe`] checks that a given program writes the same bytes.

use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::vec;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryMetadata {
    /// Seconds since 1970.
    pub(super) mtime: u64,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) user: String,
    pub(super) group: String,
}

impl StoreLayer {
    /// Starts to read the layer's tar. Fails for what cannot be written the same way, such as a file of 8 GiB.
    pub(super) fn open(&self) -> io::Result<StoreTar> {
        let EntryMetadata { mtime, uid, gid, .. } = self.metadata;
        if mtime > LARGEST_SIZE || uid.max(gid) > LARGEST_ID {
            return Err(unsupported("its owner or its time"));
        }
        let mut entries = vec![StoreEntry::root("/nix/"), StoreEntry::root("/nix/store/")];
        for path in &self.paths {
            add(path, &mut entries)?;
        }
        let length = |entry: &StoreEntry| {
            let header = entry.header(&self.metadata).len() as u64;
            header + entry.size().next_multiple_of(BLOCK)
        };
        let written: u64 = entries.iter().map(length).sum();
        let size = (written + 2 * BLOCK).next_multiple_of(RECORD);
        Ok(StoreTar {
            size,
            entries: entries.into_iter(),
            metadata: self.metadata.clone(),
            current: Box::new(io::empty()),
            end: Some(size - written),
        })
    }
}

/// A tar that is generated while it is read.
pub(super) struct StoreTar {
    size: u64,
    entries: vec::IntoIter<StoreEntry>,
    metadata: EntryMetadata,
    current: Box<dyn Read>,
    /// The number of zeros after the last entry; `None` once they were read.
    end: Option<u64>,
}

impl StoreTar {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The next part of the tar.
    fn next_part(&mut self) -> io::Result<Option<Box<dyn Read>>> {
        let Some(entry) = self.entries.next() else {
            return Ok(self
                .end
                .take()
                .map(|length| Box::new(zeros(length)) as Box<dyn Read>));
        };
        let header = Cursor::new(entry.header(&self.metadata));
        Ok(Some(match &entry.kind {
            StoreEntryKind::File { path, size } if *size > 0 => {
                let padding = zeros(size.next_multiple_of(BLOCK) - size);
                Box::new(header.chain(File::open(path)?.take(*size)).chain(padding))
            }
            _ => Box::new(header),
        }))
    }
}

impl Read for StoreTar {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.current.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match self.next_part()? {
                Some(next) => self.current = next,
                None => return Ok(0),
            }
        }
    }
}

struct StoreEntry {
    /// Begins with a slash; that of a directory also ends with one.
    name: String,
    mode: u32,
    kind: StoreEntryKind,
}

enum StoreEntryKind {
    Directory,
    File { path: PathBuf, size: u64 },
    Link { target: String },
}

/// Adds a path and everything below it, sorted by path components.
fn add(path: &Path, entries: &mut Vec<StoreEntry>) -> io::Result<()> {
    let entry = StoreEntry::read(path)?;
    let is_directory = matches!(entry.kind, StoreEntryKind::Directory);
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
    fn root(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            mode: 0o755,
            kind: StoreEntryKind::Directory,
        }
    }

    fn read(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        let mut name = text(path)?;
        let kind = if metadata.is_dir() {
            name.push('/');
            StoreEntryKind::Directory
        } else if metadata.is_symlink() {
            let target = text(&fs::read_link(path)?)?;
            StoreEntryKind::Link { target }
        } else if metadata.is_file() && metadata.len() <= LARGEST_SIZE {
            let (path, size) = (path.to_owned(), metadata.len());
            StoreEntryKind::File { path, size }
        } else {
            return Err(unsupported(&format!("`{}`", path.display())));
        };
        let mode = metadata.permissions().mode() & 0o7777;
        Ok(Self { name, mode, kind })
    }

    fn size(&self) -> u64 {
        match self.kind {
            StoreEntryKind::File { size, .. } => size,
            StoreEntryKind::Directory | StoreEntryKind::Link { .. } => 0,
        }
    }

    /// The blocks before the content.
    fn header(&self, metadata: &EntryMetadata) -> Vec<u8> {
        let (letter, link) = match &self.kind {
            StoreEntryKind::Directory => (b'5', ""),
            StoreEntryKind::File { .. } => (b'0', ""),
            StoreEntryKind::Link { target } => (b'2', target.as_str()),
        };
        let fields = [
            ("path", self.name.as_str(), 100),
            ("linkpath", link, 100),
            ("uname", &metadata.user, 32),
            ("gname", &metadata.group, 32),
        ];
        let records: String = fields
            .into_iter()
            .filter(|(_, value, longest)| !value.is_ascii() || value.len() > *longest)
            .map(|(keyword, value, _)| record(keyword, value))
            .collect();
        let mut bytes = extended(records);
        let fields = HeaderFields {
            name: &self.name,
            mode: self.mode,
            size: self.size(),
            letter,
            link,
        };
        bytes.extend(fields.block(metadata));
        bytes
    }
}

/// The pax header with these records, if there are any.
fn extended(records: String) -> Vec<u8> {
    if records.is_empty() {
        return Vec::new();
    }
    let fields = HeaderFields {
        name: "././@PaxHeader",
        mode: 0,
        size: records.len() as u64,
        letter: b'x',
        link: "",
    };
    let unowned = EntryMetadata {
        mtime: 0,
        uid: 0,
        gid: 0,
        user: String::new(),
        group: String::new(),
    };
    let mut bytes = fields.block(&unowned);
    bytes.extend(records.into_bytes());
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
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

/// The fields of a header block that differ between entries.
struct HeaderFields<'a> {
    name: &'a str,
    mode: u32,
    size: u64,
    letter: u8,
    link: &'a str,
}

impl HeaderFields<'_> {
    fn block(&self, metadata: &EntryMetadata) -> Vec<u8> {
        let mut block = Vec::with_capacity(512);
        put_text(&mut block, self.name, 100);
        put_octal(&mut block, u64::from(self.mode), 8);
        put_octal(&mut block, metadata.uid, 8);
        put_octal(&mut block, metadata.gid, 8);
        put_octal(&mut block, self.size, 12);
        put_octal(&mut block, metadata.mtime, 12);
        let checksum = block.len();
        block.extend(b"        ");
        block.push(self.letter);
        put_text(&mut block, self.link, 100);
        block.extend(b"ustar\x0000");
        put_text(&mut block, &metadata.user, 32);
        put_text(&mut block, &metadata.group, 32);
        block.resize(512, 0);
        let sum: u32 = block.iter().copied().map(u32::from).sum();
        block[checksum..checksum + 7].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    }
}

/// Text truncated to its field, with a question mark for each character that is not ASCII.
fn put_text(block: &mut Vec<u8>, text: &str, width: usize) {
    let end = block.len() + width;
    let ascii = text
        .chars()
        .map(|c| u8::try_from(c).ok().filter(u8::is_ascii).unwrap_or(b'?'));
    block.extend(ascii.take(width));
    block.resize(end, 0);
}

fn put_octal(block: &mut Vec<u8>, number: u64, width: usize) {
    let digits = format!("{number:0digits$o}\0", digits = width - 1);
    block.extend(digits.into_bytes());
}

fn zeros(length: u64) -> impl Read {
    io::repeat(0).take(length)
}

fn text(path: &Path) -> io::Result<String> {
    let text = path.to_str().map(ToOwned::to_owned);
    text.ok_or_else(|| unsupported(&format!("`{}`", path.display())))
}

fn unsupported(what: &str) -> io::Error {
    let message = format!("{what} is not supported in a layer");
    io::Error::new(io::ErrorKind::Unsupported, message)
}
