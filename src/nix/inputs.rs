//! The content hash of a flake's package, computed from tracked files without starting `nix`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::cache::Cache;
use super::error::NixError;
use super::flake::{Flake, Place, git};
use super::flake_ref::LocalFlake;
use super::output::FlakeOutput;
use crate::remember::{FileHash, FileHashes, Hashed, Hashes, Look};

/// The first line of what is hashed. A change of the form changes it, and with it every hash.
const HEADER: &str = "ralph nix image 1\n";

/// The mode that git has for a submodule.
const GITLINK: &[u8] = b"160000";

/// Which files of a repository an image depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Inputs {
    /// Every file that git tracks: what Nix itself would copy. Never stale, whatever the flake reads.
    #[default]
    Tracked,
    /// Every tracked `.nix` file, the flake's lock, and what is tracked at or below these paths. Whoever declares
    /// them vouches that the image depends on nothing else.
    Declared(Vec<InputPath>),
}

impl Inputs {
    fn count(&self, path: &[u8], lock: &[u8]) -> bool {
        match self {
            Self::Tracked => true,
            Self::Declared(declared) => {
                path.ends_with(b".nix") || path == lock || declared.iter().any(|input| input.covers(path))
            }
        }
    }
}

/// A file or directory that an image depends on, from the root of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputPath(String);

/// Text that is no path inside the repository.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a path inside the repository, from its root")]
pub struct InputPathError(String);

impl InputPath {
    /// Reads `nix`, `./nix/` or `Cargo.lock`.
    pub fn parse(text: &str) -> Result<Self, InputPathError> {
        let refused = || InputPathError(text.to_owned());
        let mut parts = Vec::new();
        for component in Path::new(text).components() {
            match component {
                Component::CurDir => {}
                Component::Normal(part) => parts.push(part.to_str().ok_or_else(refused)?),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(refused()),
            }
        }
        if parts.is_empty() {
            return Err(refused());
        }
        Ok(Self(parts.join("/")))
    }

    fn covers(&self, path: &[u8]) -> bool {
        let below = path.strip_prefix(self.0.as_bytes());
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }
}

/// What a package is made from, as one number: the same number means the same inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl Flake {
    /// The hash of everything that decides what a package will be: the inputs as they stand in the working directory,
    /// the name of the package and its system. Files that git does not track do not count, as Nix does not see them.
    pub async fn content_hash(
        &self,
        output: &FlakeOutput,
        inputs: &Inputs,
        cache: &Cache,
    ) -> Result<ContentHash, NixError> {
        let mut manifest = Manifest::new(output);
        match &self.place {
            Place::Pinned(url) => {
                manifest.add("pinned", url.as_bytes(), b"");
                Ok(manifest.hash())
            }
            Place::Local(flake) => {
                let chosen = choose(flake, inputs, self.tracked(flake).await?)?;
                manifest.add("flake", flake.dir().as_os_str().as_bytes(), b"");
                let files = Files {
                    root: flake.root().to_owned(),
                    known: cache.file_hashes(flake),
                    used: Hashes::new(),
                };
                tokio::task::spawn_blocking(move || manifest.with_files(&chosen, files))
                    .await
                    .map_err(|error| NixError::file("hash the files of", flake.root())(error.into()))?
            }
        }
    }

    async fn tracked(&self, flake: &LocalFlake) -> Result<BTreeMap<Vec<u8>, IndexEntry>, NixError> {
        let list = git().args(["ls-files", "-z", "--stage", "--recurse-submodules"]);
        let printed = self.git(flake, &list).await?;
        let records = printed
            .split(|byte| *byte == 0)
            .filter(|record| !record.is_empty());
        records
            .map(|record| {
                parse_record(record).ok_or_else(|| NixError::unexpected("git", "a list of files", record))
            })
            .collect()
    }
}

/// What git's index says of a path: enough to tell what stands in the place of a file that is not checked out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IndexEntry {
    mode: Vec<u8>,
    id: Vec<u8>,
}

/// `<mode> <id> <stage>\t<path>`
fn parse_record(record: &[u8]) -> Option<(Vec<u8>, IndexEntry)> {
    let tab = record.iter().position(|byte| *byte == b'\t')?;
    let mut fields = record[..tab].split(|byte| *byte == b' ');
    let entry = IndexEntry {
        mode: fields.next()?.to_owned(),
        id: fields.next()?.to_owned(),
    };
    Some((record[tab + 1..].to_owned(), entry))
}

/// The tracked files that count.
fn choose(
    flake: &LocalFlake,
    inputs: &Inputs,
    mut tracked: BTreeMap<Vec<u8>, IndexEntry>,
) -> Result<BTreeMap<Vec<u8>, IndexEntry>, NixError> {
    let own = |name: &str| flake.dir().join(name).into_os_string().as_bytes().to_owned();
    if !tracked.contains_key(&own("flake.nix")) {
        return Err(NixError::NoFlake(flake.path()));
    }
    if let Inputs::Declared(declared) = inputs {
        // A slip in a declared path must not turn into an image that is never rebuilt.
        let leads_nowhere = |input: &&InputPath| !tracked.keys().any(|path| input.covers(path));
        if let Some(input) = declared.iter().find(leads_nowhere) {
            return Err(NixError::NoSuchInput {
                path: input.0.clone(),
            });
        }
    }
    let lock = own("flake.lock");
    tracked.retain(|path, _| inputs.count(path, &lock));
    Ok(tracked)
}

/// What is hashed: records of a word, a name and a value, each with its length, so that no two lists look alike.
struct Manifest(Sha256);

impl Manifest {
    fn new(output: &FlakeOutput) -> Self {
        let mut manifest = Self(Sha256::new_with_prefix(HEADER));
        manifest.add("output", output.to_string().as_bytes(), b"");
        manifest
    }

    fn add(&mut self, word: &str, name: &[u8], value: &[u8]) {
        self.0.update(format!("{word} {} {}\n", name.len(), value.len()));
        self.0.update(name);
        self.0.update(value);
    }

    fn add_file(&mut self, path: &[u8], entry: &IndexEntry, files: &mut Files) -> Result<(), NixError> {
        let full = files.full(path);
        let metadata = match fs::symlink_metadata(&full) {
            Ok(metadata) => Some(metadata),
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(NixError::file("read", &full)(error)),
        };
        match metadata {
            Some(metadata) if metadata.is_file() => {
                let is_executable = metadata.permissions().mode() & 0o100 != 0;
                let word = if is_executable { "executable" } else { "file" };
                let hash = files.hash(path, &metadata)?;
                self.add(word, path, hex(&hash).as_bytes());
            }
            Some(metadata) if metadata.is_symlink() => {
                let target = fs::read_link(&full).map_err(NixError::file("read", &full))?;
                self.add("link", path, target.as_os_str().as_bytes());
            }
            _ if entry.mode == GITLINK => self.add("submodule", path, &entry.id),
            // Deleted, or not checked out; in the second case Nix takes it from the commit.
            _ => self.add("absent", path, &entry.id),
        }
        Ok(())
    }

    fn with_files(
        mut self,
        entries: &BTreeMap<Vec<u8>, IndexEntry>,
        mut files: Files,
    ) -> Result<ContentHash, NixError> {
        for (path, entry) in entries {
            self.add_file(path, entry, &mut files)?;
        }
        files.known.replace(&files.used);
        Ok(self.hash())
    }

    fn hash(self) -> ContentHash {
        ContentHash(self.0.finalize().into())
    }
}

/// The files of a repository, and what is remembered of them.
struct Files {
    root: PathBuf,
    known: FileHashes,
    /// The hashes that were asked for.
    used: Hashes,
}

impl Files {
    /// Where a path from the root is in the file system.
    fn full(&self, path: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(path))
    }

    fn hash(&mut self, path: &[u8], metadata: &Metadata) -> Result<FileHash, NixError> {
        let full = self.full(path);
        let hashed = self.known.hash(path, &full, &Look::of(metadata));
        let Hashed { hash, lasting } = hashed.map_err(NixError::file("read", &full))?;
        if let Some(look) = lasting {
            self.used.insert(path.to_owned(), (look, hash));
        }
        Ok(hash)
    }
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits
        .filter_map(|digit| char::from_digit(u32::from(digit), 16))
        .collect()
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
