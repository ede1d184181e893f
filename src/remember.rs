//! What is remembered from one call to the next, so that nothing is read twice. All of it can be deleted.
//!
//! A file is known by its path, size, inode and the times of its last change. One that changed a moment ago is never
//! remembered: it could change once more without any of these telling.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::atomic_file::{FileAccess, write_atomically};

/// How long ago the last change of a file must be. Some file systems keep times in steps of two seconds.
const SETTLED: SignedDuration = SignedDuration::from_secs(2);
/// The beginning of a file of hashes; another one means another form.
const HEADER: &[u8] = b"ralph file hashes 2\n";
/// How much of a file is in memory at a time.
const BLOCK: usize = 256 * 1024;

/// The SHA-256 of a file's content.
pub(crate) type FileHash = [u8; 32];

/// Hashes by path, and what the files looked like.
pub(crate) type Hashes = BTreeMap<Vec<u8>, (Look, FileHash)>;

/// What tells one state of a file from the next. Nobody can set the time of the last change of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    size: u64,
    device: u64,
    inode: u64,
    modified: Moment,
    changed: Moment,
}

/// Seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Moment(i64, i64);

impl Look {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.size(),
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: Moment(metadata.mtime(), metadata.mtime_nsec()),
            changed: Moment(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the last change is so long ago that a later one would show.
    pub(crate) fn is_settled(&self, now: Timestamp) -> bool {
        let Moment(seconds, rest) = self.modified.max(self.changed);
        let settled = Moment(seconds.saturating_add(SETTLED.as_secs()), rest);
        settled < Moment(now.as_second(), i64::from(now.subsec_nanosecond()))
    }
}

/// The hashes of some files, as an earlier call left them. Without its file, or with a damaged one, there are none.
#[derive(Debug)]
pub(crate) struct FileHashes {
    store: PathBuf,
    now: Timestamp,
    known: Hashes,
}

/// A file's hash, and what the file looked like if a later call may rely on it.
pub(crate) struct Hashed {
    pub(crate) hash: FileHash,
    pub(crate) lasting: Option<Look>,
}

impl FileHashes {
    /// What [`FileHashes::replace`] left in the file `store`. `now` must not lie after the first question.
    pub(crate) fn load(store: PathBuf, now: Timestamp) -> Self {
        let known = fs::read(&store).ok().and_then(|bytes| decode(&bytes));
        let known = known.unwrap_or_default();
        Self { store, now, known }
    }

    /// The hash of a file that looked like this before.
    pub(crate) fn find(&self, name: &[u8], look: &Look) -> Option<FileHash> {
        let (known, hash) = self.known.get(name)?;
        (known == look && look.is_settled(self.now)).then_some(*hash)
    }

    /// The hash of the file at `path`, which is remembered under `name` and looked like this. Reads it when it must.
    pub(crate) fn hash(&self, name: &[u8], path: &Path, look: &Look) -> io::Result<Hashed> {
        if let Some(hash) = self.find(name, look) {
            let lasting = Some(*look);
            return Ok(Hashed { hash, lasting });
        }
        let mut file = File::open(path)?;
        let hash = content_hash(&mut file, look.size)?;
        let lasts = Look::of(&file.metadata()?) == *look && look.is_settled(self.now);
        let lasting = lasts.then_some(*look);
        Ok(Hashed { hash, lasting })
    }

    /// Remembers these hashes, and forgets all others. Where that fails, the next time is slower.
    pub(crate) fn replace(&self, hashes: &Hashes) {
        if *hashes != self.known {
            save(&self.store, &encode(hashes));
        }
    }
}

/// Writes a file of what is remembered, whole or not at all. Nothing depends on it, so that a failure is only noted.
pub(crate) fn save(path: &Path, bytes: &[u8]) {
    if let Err(error) = write_atomically(path, bytes, FileAccess::Private) {
        tracing::warn!(path = %path.display(), %error, "cannot write a file of the cache");
    }
}

fn content_hash(file: &mut File, expected: u64) -> io::Result<FileHash> {
    let mut hasher = Sha256::new();
    let mut block = vec![0; usize::try_from(expected).map_or(BLOCK, |size| size.clamp(512, BLOCK))];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(read) => hasher.update(&block[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The header, the hash of all that follows, and the records.
fn encode(hashes: &Hashes) -> Vec<u8> {
    let mut records = Vec::new();
    for (name, (look, hash)) in hashes {
        let Look {
            size,
            device,
            inode,
            modified,
            changed,
        } = look;
        records.extend_from_slice(hash);
        for number in [*size, *device, *inode, name.len() as u64] {
            records.extend_from_slice(&number.to_le_bytes());
        }
        for number in [modified.0, modified.1, changed.0, changed.1] {
            records.extend_from_slice(&number.to_le_bytes());
        }
        records.extend_from_slice(name);
    }
    [HEADER, &Sha256::digest(&records), &records].concat()
}

/// `None` for what was not written whole by this version.
fn decode(bytes: &[u8]) -> Option<Hashes> {
    let rest = bytes.strip_prefix(HEADER)?;
    let (hash, mut records) = rest.split_first_chunk::<32>()?;
    if FileHash::from(Sha256::digest(records)) != *hash {
        return None;
    }
    let mut hashes = Hashes::new();
    while !records.is_empty() {
        let hash = take::<32>(&mut records)?;
        let mut number = || take::<8>(&mut records);
        let [size, device, inode, length] =
            [number()?, number()?, number()?, number()?].map(u64::from_le_bytes);
        let [modified, modified_rest, changed, changed_rest] =
            [number()?, number()?, number()?, number()?].map(i64::from_le_bytes);
        let (name, rest) = records.split_at_checked(usize::try_from(length).ok()?)?;
        records = rest;
        let look = Look {
            size,
            device,
            inode,
            modified: Moment(modified, modified_rest),
            changed: Moment(changed, changed_rest),
        };
        hashes.insert(name.to_owned(), (look, hash));
    }
    Some(hashes)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

/// Puts a false hash in the place of every remembered one, as only a memory that is believed would show.
#[cfg(test)]
pub(crate) fn falsify(store: &Path) {
    let hashes = FileHashes::load(store.to_owned(), Timestamp::now());
    let false_ones = hashes.known.iter();
    let false_ones = false_ones.map(|(name, (look, _))| (name.clone(), (*look, [7; 32])));
    hashes.replace(&false_ones.collect());
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

        fn file(&self) -> PathBuf {
            self.dir.path().join("file")
        }

        fn store(&self) -> PathBuf {
            self.dir.path().join("cache/hashes")
        }

        /// Asks for the file's hash as if it were so many seconds later.
        fn ask(&self, later: i64) -> FileHash {
            let now = Timestamp::now() + SignedDuration::from_secs(later);
            let hashes = FileHashes::load(self.store(), now);
            let look = Look::of(&fs::symlink_metadata(self.file()).unwrap());
            let Hashed { hash, lasting } = hashes.hash(b"file", &self.file(), &look).unwrap();
            hashes.replace(
                &lasting
                    .map(|look| (b"file".to_vec(), (look, hash)))
                    .into_iter()
                    .collect(),
            );
            hash
        }

        fn falsify(&self) {
            falsify(&self.store());
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
    fn what_is_remembered_does_not_count_for_a_clock_that_was_set_back() {
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
    fn a_file_from_the_future_is_never_remembered() {
        let world = World::new();
        let file = File::options().append(true).open(world.file()).unwrap();
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
        let is_taken = |bytes: &[u8]| {
            fs::write(world.store(), bytes).unwrap();
            !FileHashes::load(world.store(), Timestamp::now()).known.is_empty()
        };
        assert!(is_taken(&whole));
        for cut in 0..whole.len() {
            assert!(!is_taken(&whole[..cut]), "{cut} bytes were taken for whole");
            let mut changed = whole.clone();
            changed[cut] ^= 1;
            assert!(
                !is_taken(&changed),
                "with another byte {cut} it was taken for whole"
            );
        }
        fs::write(world.store(), "something else").unwrap();
        assert_eq!(world.ask(5), sha256("one"));
    }
}
