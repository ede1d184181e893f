//! Remembers the digests of files, so that a file which did not change is not read again.
//!
//! A file is known by its path, size, inode and the times of its last change. One that changed a moment ago is never
//! remembered: it could change once more without any of these telling.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::image::digest::Digest;

/// How long ago the last change of a file must be. Some file systems keep times in steps of two seconds.
const SETTLED_AFTER: i64 = 2;

/// A directory of remembered digests, a file for each build context.
#[derive(Clone)]
pub struct HashCache {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
}

impl HashCache {
    /// Keeps what is remembered in a directory, which is made when it is first needed.
    pub fn new(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            dir: dir.into(),
            clock,
        }
    }

    /// What is remembered of the files below `root`. A damaged file is as good as none.
    pub(super) fn load(&self, root: &Path) -> Remembered {
        let bytes = fs::read(self.file(root)).unwrap_or_default();
        let now = self.clock.now();
        Remembered {
            now: Moment(now.as_second(), i64::from(now.subsec_nanosecond())),
            files: decode(&bytes).unwrap_or_default(),
        }
    }

    /// Replaces what is remembered of the files below `root`.
    pub(super) fn save(&self, root: &Path, files: &Files) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.dir)?;
        file.write_all(&encode(files)?)?;
        file.persist(self.file(root)).map_err(|error| error.error)?;
        Ok(())
    }

    fn file(&self, root: &Path) -> PathBuf {
        let name = Digest::of(root.as_os_str().as_bytes());
        self.dir.join(format!("context-{name}"))
    }
}

/// Digests by path.
pub(super) type Files = BTreeMap<String, (Fingerprint, Digest)>;

/// What an earlier look at a context left.
pub(super) struct Remembered {
    now: Moment,
    pub(super) files: Files,
}

impl Remembered {
    /// The digest of a file that did not change since.
    pub(super) fn digest(&self, path: &str, fingerprint: &Fingerprint) -> Option<Digest> {
        let (known, digest) = self.files.get(path)?;
        (known == fingerprint && self.is_settled(fingerprint)).then_some(*digest)
    }

    /// Whether a file's last change is so long ago that a later one would show.
    pub(super) fn is_settled(&self, fingerprint: &Fingerprint) -> bool {
        let last_change = fingerprint.modified.max(fingerprint.changed);
        Moment(last_change.0.saturating_add(SETTLED_AFTER), last_change.1) < self.now
    }
}

/// Seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Moment(i64, i64);

/// What tells one state of a file from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    size: u64,
    device: u64,
    inode: u64,
    modified: Moment,
    changed: Moment,
}

impl Fingerprint {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.size(),
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: Moment(metadata.mtime(), metadata.mtime_nsec()),
            changed: Moment(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A line of the stored file: path, fingerprint, digest.
#[derive(Serialize, Deserialize)]
struct Row(String, Fingerprint, String);

/// The digest of the rest on the first line, then the rows.
fn encode(files: &Files) -> io::Result<Vec<u8>> {
    let rows = files
        .iter()
        .map(|(path, (fingerprint, digest))| Row(path.clone(), *fingerprint, digest.to_string()));
    let rows = serde_json::to_vec(&rows.collect::<Vec<_>>())?;
    let mut bytes = format!("{}\n", Digest::of(&rows)).into_bytes();
    bytes.extend(rows);
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Option<Files> {
    let (head, rows) = bytes.split_at_checked(DIGEST_LINE)?;
    let expected = Digest::parse(str::from_utf8(head).ok()?.strip_suffix('\n')?).ok()?;
    if Digest::of(rows) != expected {
        return None;
    }
    let rows: Vec<Row> = serde_json::from_slice(rows).ok()?;
    let parsed = rows
        .into_iter()
        .map(|Row(path, fingerprint, digest)| Some((path, (fingerprint, Digest::parse(&digest).ok()?))));
    parsed.collect()
}

const DIGEST_LINE: usize = 65;
