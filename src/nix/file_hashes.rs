//! Hashes of files, remembered as long as nothing about the file says that it may have changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::error::NixError;

/// A file that changed less long ago is hashed every time: a second change within the file system's own tick would
/// not show in its times.
const SETTLED: SignedDuration = SignedDuration::from_secs(1);
/// The first line of the file; another one means another form.
const HEADER: &[u8] = b"ralph file hashes 1\n";
/// How much of a file is in memory at a time.
const BLOCK: usize = 128 * 1024;

/// The SHA-256 of a file's content.
pub(super) type FileHash = [u8; 32];

/// The hashes of the files below one directory. Without its file, or with a damaged one, everything is hashed anew.
#[derive(Debug)]
pub(super) struct FileHashes {
    root: PathBuf,
    store: PathBuf,
    now: Timestamp,
    known: BTreeMap<Vec<u8>, Known>,
    used: BTreeMap<Vec<u8>, Known>,
}

/// A hash, and what the file looked like when it was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    look: Look,
    hash: FileHash,
}

/// Everything about a file that changes with its content. Nobody can set the time of the last change of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    size: u64,
    modified: i128,
    changed: i128,
    inode: u64,
    device: u64,
}

impl FileHashes {
    /// The files below `root`, and what an earlier [`FileHashes::save`] left in the file `store`. `now` must not lie
    /// after the first question.
    pub(super) fn load(root: PathBuf, store: PathBuf, now: Timestamp) -> Self {
        let known = fs::read(&store)
            .ok()
            .and_then(|bytes| parse(&bytes))
            .unwrap_or_default();
        Self {
            root,
            store,
            now,
            known,
            used: BTreeMap::new(),
        }
    }

    /// Where a path below the root is in the file system.
    pub(super) fn full(&self, path: &OsStr) -> PathBuf {
        self.root.join(path)
    }

    /// The hash of the file at this path below the root, which `metadata` is of.
    pub(super) fn hash(&mut self, path: &OsStr, metadata: &Metadata) -> Result<FileHash, NixError> {
        let look = Look::of(metadata);
        if let Some(known) = self.known.get(path.as_bytes()).filter(|known| known.look == look) {
            self.used.insert(path.as_bytes().to_owned(), *known);
            return Ok(known.hash);
        }
        let full = self.full(path);
        let mut file = File::open(&full).map_err(NixError::file("read", &full))?;
        let hash = content_hash(&mut file).map_err(NixError::file("read", &full))?;
        let after = file.metadata().map_err(NixError::file("read", &full))?;
        if look == Look::of(&after) && look.is_settled(self.now) {
            self.used.insert(path.as_bytes().to_owned(), Known { look, hash });
        }
        Ok(hash)
    }

    /// Remembers the hashes that were asked for, and forgets all others. Where that fails, the next time is slower.
    pub(super) fn save(self) {
        if self.used != self.known {
            remember(&self.store, &self.printed());
        }
    }

    fn printed(&self) -> Vec<u8> {
        let mut bytes = HEADER.to_vec();
        for (path, Known { look, hash }) in &self.used {
            let Look {
                size,
                modified,
                changed,
                inode,
                device,
            } = look;
            let line = format!("{} {size} {modified} {changed} {inode} {device} ", hex(hash));
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(path);
            bytes.push(0);
        }
        bytes
    }
}

impl Look {
    fn of(metadata: &Metadata) -> Self {
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            size: metadata.size(),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
            device: metadata.dev(),
        }
    }

    fn is_settled(&self, now: Timestamp) -> bool {
        now.as_nanosecond() - self.changed.max(self.modified) > SETTLED.as_nanos()
    }
}

/// Writes a file of the cache, whole or not at all. Nothing depends on it, so that a failure is only noted.
pub(super) fn remember(path: &Path, bytes: &[u8]) {
    let replace = || {
        let dir = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir)?;
        let mut temp = tempfile::NamedTempFile::new_in(dir)?;
        temp.write_all(bytes)?;
        temp.persist(path)?;
        io::Result::Ok(())
    };
    if let Err(error) = replace() {
        tracing::warn!(path = %path.display(), %error, "cannot write a file of the cache");
    }
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits
        .filter_map(|digit| char::from_digit(u32::from(digit), 16))
        .collect()
}

fn content_hash(file: &mut File) -> io::Result<FileHash> {
    let mut hasher = Sha256::new();
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hasher.finalize().into()),
            read => hasher.update(&block[..read]),
        }
    }
}

/// `None` for what was not written whole by this version.
fn parse(bytes: &[u8]) -> Option<BTreeMap<Vec<u8>, Known>> {
    let records = bytes.strip_prefix(HEADER)?;
    let mut records: Vec<&[u8]> = records.split(|byte| *byte == 0).collect();
    let rest = records.pop()?;
    rest.is_empty()
        .then(|| records.into_iter().map(parse_record).collect())?
}

fn parse_record(record: &[u8]) -> Option<(Vec<u8>, Known)> {
    let mut fields = record.splitn(7, |byte| *byte == b' ');
    let hash = unhex(fields.next()?)?;
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let look = Look {
        size: text()?.parse().ok()?,
        modified: text()?.parse().ok()?,
        changed: text()?.parse().ok()?,
        inode: text()?.parse().ok()?,
        device: text()?.parse().ok()?,
    };
    Some((fields.next()?.to_owned(), Known { look, hash }))
}

fn unhex(digits: &[u8]) -> Option<FileHash> {
    let value = |digit: &u8| u8::try_from(char::from(*digit).to_digit(16)?).ok();
    let bytes: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(value(high)? << 4 | value(low)?),
            _ => None,
        })
        .collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use tempfile::TempDir;

    use super::*;

    /// A directory with one file, and where its hash is remembered.
    struct World {
        dir: TempDir,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("file"), "one").unwrap();
            Self { dir }
        }

        fn store(&self) -> PathBuf {
            self.dir.path().join("cache/hashes")
        }

        /// Asks for the file's hash as if it were so many seconds later.
        fn ask(&self, later: i64) -> FileHash {
            let now = Timestamp::now() + SignedDuration::from_secs(later);
            let mut hashes = FileHashes::load(self.dir.path().into(), self.store(), now);
            let metadata = fs::symlink_metadata(self.dir.path().join("file")).unwrap();
            let hash = hashes.hash(OsStr::new("file"), &metadata).unwrap();
            hashes.save();
            hash
        }

        /// Puts a false hash in the place of every remembered one.
        fn falsify(&self) {
            let mut hashes = FileHashes::load(self.dir.path().into(), self.store(), Timestamp::now());
            hashes.used = std::mem::take(&mut hashes.known);
            for known in hashes.used.values_mut() {
                known.hash = [7; 32];
            }
            hashes.save();
        }
    }

    fn sha256(text: &str) -> FileHash {
        Sha256::digest(text).into()
    }

    #[test]
    fn a_file_that_looks_the_same_is_not_read_again() {
        let world = World::new();
        assert_eq!(world.ask(5), sha256("one"));
        world.falsify();
        assert_eq!(world.ask(5), [7; 32]);
    }

    #[test]
    fn a_file_changed_within_the_last_second_is_never_remembered() {
        let world = World::new();
        assert_eq!(world.ask(0), sha256("one"));
        world.falsify();
        assert_eq!(world.ask(0), sha256("one"));
    }

    #[test]
    fn the_same_size_and_time_do_not_hide_a_change() {
        let world = World::new();
        let path = world.dir.path().join("file");
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        world.ask(5);
        fs::write(&path, "two").unwrap();
        File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_modified(before)
            .unwrap();
        assert_eq!(world.ask(5), sha256("two"));
    }

    #[test]
    fn a_file_from_the_future_is_never_remembered() {
        let world = World::new();
        let file = File::options()
            .append(true)
            .open(world.dir.path().join("file"))
            .unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(3600))
            .unwrap();
        world.ask(5);
        world.falsify();
        assert_eq!(world.ask(5), sha256("one"));
    }

    #[test]
    fn a_damaged_memory_is_no_memory() {
        let world = World::new();
        world.ask(5);
        let whole = fs::read(world.store()).unwrap();
        for cut in 0..whole.len() {
            fs::write(world.store(), &whole[..cut]).unwrap();
            let now = Timestamp::now();
            let kept = FileHashes::load(world.dir.path().into(), world.store(), now).known;
            assert!(kept.is_empty(), "{cut} bytes were taken for whole");
        }
        fs::write(world.store(), "something else").unwrap();
        assert_eq!(world.ask(5), sha256("one"));
    }
}
