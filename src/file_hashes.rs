//! Cached hashes of files, so that an unchanged file is not read twice. The cache can be deleted.
//!
//! A file is recognized by its path, size, inode and times. A file that changed a moment ago is never cached: it could
//! change again without a difference in any of these.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::atomic_file::write_cache;
use crate::digest::Digest;

/// How long ago the last change of a file must be. Some file systems store times in steps of two seconds.
const SETTLED: SignedDuration = SignedDuration::from_secs(2);
/// The beginning of a file of hashes. A new format gets a new header.
const HEADER: &[u8] = b"ralph file hashes 3\n";
/// How much of a file is in memory at a time.
const BLOCK: usize = 256 * 1024;

/// The stamps and hashes of files, by path.
pub(crate) type HashTable = BTreeMap<Vec<u8>, (FileStamp, Digest)>;

/// Identifies one state of a file. Programs cannot set the change time of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileStamp {
    size: u64,
    device: u64,
    inode: u64,
    modified: FileTime,
    changed: FileTime,
}

/// Seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct FileTime(i64, i64);

impl FileStamp {
    pub(crate) fn new(metadata: &Metadata) -> Self {
        Self {
            size: metadata.size(),
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: FileTime(metadata.mtime(), metadata.mtime_nsec()),
            changed: FileTime(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the last change is so long ago that a later one would change the stamp.
    pub(crate) fn is_settled(&self, now: Timestamp) -> bool {
        let FileTime(seconds, rest) = self.modified.max(self.changed);
        let settled = FileTime(seconds.saturating_add(SETTLED.as_secs()), rest);
        settled < FileTime(now.as_second(), i64::from(now.subsec_nanosecond()))
    }
}

/// The hashes of files that an earlier call stored. Empty if the store is missing or damaged.
#[derive(Debug)]
pub(crate) struct FileHashes {
    store: PathBuf,
    now: Timestamp,
    known: HashTable,
}

/// A file's hash.
pub(crate) struct HashedFile {
    pub(crate) digest: Digest,
    /// The file's stamp, if a later call may reuse the hash.
    pub(crate) reusable: Option<FileStamp>,
}

impl FileHashes {
    /// Reads what [`FileHashes::replace`] wrote to the file `store`. `now` must not be later than the first lookup.
    pub(crate) fn load(store: PathBuf, now: Timestamp) -> Self {
        let known = fs::read(&store).ok().and_then(|bytes| decode(&bytes));
        let known = known.unwrap_or_default();
        Self { store, now, known }
    }

    /// The cached hash of a file with this stamp.
    pub(crate) fn find(&self, name: &[u8], stamp: &FileStamp) -> Option<Digest> {
        let (known, digest) = self.known.get(name)?;
        (known == stamp && stamp.is_settled(self.now)).then_some(*digest)
    }

    /// The hash of the file at `path`, which is cached under `name`. Reads the file if its hash is not cached.
    pub(crate) fn hash(&self, name: &[u8], path: &Path, stamp: &FileStamp) -> io::Result<HashedFile> {
        if let Some(digest) = self.find(name, stamp) {
            let reusable = Some(*stamp);
            return Ok(HashedFile { digest, reusable });
        }
        let mut file = File::open(path)?;
        let digest = content_hash(&mut file, stamp.size)?;
        let is_unchanged = FileStamp::new(&file.metadata()?) == *stamp;
        let reusable = (is_unchanged && stamp.is_settled(self.now)).then_some(*stamp);
        Ok(HashedFile { digest, reusable })
    }

    /// Stores these hashes in place of all others. If that fails, the next call is slower.
    pub(crate) fn replace(&self, hashes: &HashTable) {
        if *hashes != self.known
            && let Some(bytes) = encode(hashes)
        {
            write_cache(&self.store, &bytes);
        }
    }
}

fn content_hash(file: &mut File, expected: u64) -> io::Result<Digest> {
    let mut hasher = Sha256::new();
    let mut block = vec![0; usize::try_from(expected).map_or(BLOCK, |size| size.clamp(512, BLOCK))];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(Digest::from_hasher(hasher)),
            Ok(read) => hasher.update(&block[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The header, the hash of all that follows, and the records as JSON. A file whose name is not UTF-8 is not cached.
fn encode(hashes: &HashTable) -> Option<Vec<u8>> {
    let records: Vec<(&str, &FileStamp, &Digest)> = hashes
        .iter()
        .filter_map(|(name, (stamp, digest))| Some((std::str::from_utf8(name).ok()?, stamp, digest)))
        .collect();
    let records = serde_json::to_vec(&records).ok()?;
    Some([HEADER, &Sha256::digest(&records), &records].concat())
}

/// `None` if the bytes are damaged or of another version.
fn decode(bytes: &[u8]) -> Option<HashTable> {
    let (hash, records) = bytes.strip_prefix(HEADER)?.split_first_chunk::<32>()?;
    if Digest::sha256(records).as_bytes() != hash {
        return None;
    }
    let records: Vec<(String, FileStamp, Digest)> = serde_json::from_slice(records).ok()?;
    let by_name = records
        .into_iter()
        .map(|(name, stamp, digest)| (name.into_bytes(), (stamp, digest)));
    Some(by_name.collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, SystemTime};

    use tempfile::TempDir;

    use super::*;

    /// What [`falsify`] stores.
    pub(crate) const FALSE: Digest = Digest::from_bytes([7; 32]);

    /// Replaces every stored hash by a false one, so that a test sees whether stored hashes are used.
    pub(crate) fn falsify(store: &Path) {
        let hashes = FileHashes::load(store.to_owned(), Timestamp::now());
        let false_ones = hashes.known.iter();
        let false_ones = false_ones.map(|(name, (stamp, _))| (name.clone(), (*stamp, FALSE)));
        hashes.replace(&false_ones.collect());
    }

    /// A directory with one file and a store for its hash.
    struct World {
        dir: TempDir,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("file"), "one").unwrap();
            Self { dir }
        }

        fn file(&self) -> PathBuf {
            self.dir.path().join("file")
        }

        fn store(&self) -> PathBuf {
            self.dir.path().join("cache/hashes")
        }

        /// Asks for the file's hash as if it were so many seconds later.
        fn ask(&self, later: i64) -> Digest {
            let now = Timestamp::now() + SignedDuration::from_secs(later);
            let hashes = FileHashes::load(self.store(), now);
            let stamp = FileStamp::new(&fs::symlink_metadata(self.file()).unwrap());
            let HashedFile { digest, reusable } = hashes.hash(b"file", &self.file(), &stamp).unwrap();
            hashes.replace(
                &reusable
                    .map(|stamp| (b"file".to_vec(), (stamp, digest)))
                    .into_iter()
                    .collect(),
            );
            digest
        }

        fn falsify(&self) {
            falsify(&self.store());
        }
    }

    fn sha256(text: &str) -> Digest {
        Digest::sha256(text.as_bytes())
    }

    #[test]
    fn an_unchanged_file_is_not_read_again() {
        let world = World::new();
        assert_eq!(world.ask(5), sha256("one"));
        world.falsify();
        assert_eq!(world.ask(5), FALSE);
    }

    #[test]
    fn a_file_that_just_changed_is_never_cached() {
        let world = World::new();
        assert_eq!(world.ask(0), sha256("one"));
        world.falsify();
        assert_eq!(world.ask(0), sha256("one"));
    }

    #[test]
    fn cached_hashes_are_ignored_if_the_clock_was_set_back() {
        let world = World::new();
        assert_eq!(world.ask(5), sha256("one"));
        world.falsify();
        assert_eq!(world.ask(0), sha256("one"));
    }

    #[test]
    fn the_same_size_and_time_do_not_hide_a_change() {
        let world = World::new();
        let before = fs::metadata(world.file()).unwrap().modified().unwrap();
        world.ask(5);
        fs::write(world.file(), "two").unwrap();
        let file = File::options().append(true).open(world.file()).unwrap();
        file.set_modified(before).unwrap();
        assert_eq!(world.ask(5), sha256("two"));
    }

    #[test]
    fn a_file_from_the_future_is_never_cached() {
        let world = World::new();
        let file = File::options().append(true).open(world.file()).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(3600))
            .unwrap();
        world.ask(5);
        world.falsify();
        assert_eq!(world.ask(5), sha256("one"));
    }

    #[test]
    fn a_damaged_store_is_ignored() {
        let world = World::new();
        world.ask(5);
        let whole = fs::read(world.store()).unwrap();
        let is_used = |bytes: &[u8]| {
            fs::write(world.store(), bytes).unwrap();
            !FileHashes::load(world.store(), Timestamp::now()).known.is_empty()
        };
        assert!(is_used(&whole));
        for cut in 0..whole.len() {
            assert!(!is_used(&whole[..cut]), "the first {cut} bytes were accepted");
            let mut changed = whole.clone();
            changed[cut] ^= 1;
            assert!(!is_used(&changed), "a change of byte {cut} was accepted");
        }
        fs::write(world.store(), "something else").unwrap();
        assert_eq!(world.ask(5), sha256("one"));
    }
}
