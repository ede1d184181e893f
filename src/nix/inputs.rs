//! The content hash of a flake's package, computed from tracked files without `nix`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::cache::FlakeCache;
use super::error::NixError;
use super::flake::{Flake, FlakeLocation, git};
use super::flake_ref::LocalFlake;
use super::output::FlakeOutput;
use crate::digest::Digest;
use crate::file_hashes::{FileHashes, FileStamp, HashTable};

/// The first line of the hashed text. A new format gets a new header, which changes every hash.
const HEADER: &str = "ralph nix image 1\n";

/// Git's file mode of a submodule.
const GITLINK: &[u8] = b"160000";

/// Which files of a repository an image depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FlakeInputs {
    /// Every tracked file, which is what Nix itself would copy. An image is never stale.
    #[default]
    Tracked,
    /// Every tracked `.nix` file, the flake's lock, and tracked files at or below these paths. The user guarantees that
    /// the image depends on nothing else.
    Declared(Vec<InputPath>),
}

impl FlakeInputs {
    fn include(&self, path: &[u8], lock: &[u8]) -> bool {
        match self {
            Self::Tracked => true,
            Self::Declared(declared) => {
                path.ends_with(b".nix") || path == lock || declared.iter().any(|input| input.covers(path))
            }
        }
    }
}

/// A file or directory that an image depends on, relative to the root of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputPath(String);

/// Text that is not a path inside the repository.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a relative path inside the repository")]
pub struct InputPathError(String);

impl InputPath {
    /// Parses `nix`, `./nix/` or `Cargo.lock`.
    pub fn parse(text: &str) -> Result<Self, InputPathError> {
        let invalid = || InputPathError(text.to_owned());
        let mut parts = Vec::new();
        for component in Path::new(text).components() {
            match component {
                Component::CurDir => {}
                Component::Normal(part) => parts.push(part.to_str().ok_or_else(invalid)?),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(invalid()),
            }
        }
        if parts.is_empty() {
            return Err(invalid());
        }
        Ok(Self(parts.join("/")))
    }

    fn covers(&self, path: &[u8]) -> bool {
        let below = path.strip_prefix(self.0.as_bytes());
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }
}

impl Flake {
    /// The hash of everything that a package depends on: the inputs in the working tree, the package's name and its
    /// system. Untracked files do not count, because Nix does not read them.
    pub async fn content_hash(
        &self,
        output: &FlakeOutput,
        inputs: &FlakeInputs,
        cache: &FlakeCache,
    ) -> Result<Digest, NixError> {
        let mut manifest = Manifest::new(output);
        match &self.location {
            FlakeLocation::Pinned(url) => {
                manifest.add("pinned", url.as_bytes(), b"");
                Ok(manifest.hash())
            }
            FlakeLocation::Local(flake) => {
                let chosen = select(flake, inputs, self.tracked(flake).await?)?;
                manifest.add("flake", flake.dir.as_os_str().as_bytes(), b"");
                let (root, known) = (flake.root.clone(), cache.file_hashes(flake));
                tokio::task::spawn_blocking(move || manifest.with_files(&root, &chosen, &known))
                    .await
                    .map_err(|error| NixError::file("hash the files of", &flake.root)(error.into()))?
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

/// A path's entry in git's index.
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
fn select(
    flake: &LocalFlake,
    inputs: &FlakeInputs,
    mut tracked: BTreeMap<Vec<u8>, IndexEntry>,
) -> Result<BTreeMap<Vec<u8>, IndexEntry>, NixError> {
    let own = |name: &str| flake.dir.join(name).into_os_string().as_bytes().to_owned();
    if !tracked.contains_key(&own("flake.nix")) {
        return Err(NixError::NoFlake(flake.path()));
    }
    if let FlakeInputs::Declared(declared) = inputs {
        // A typo in a declared path must not lead to an image that is never rebuilt.
        let is_missing = |input: &&InputPath| !tracked.keys().any(|path| input.covers(path));
        if let Some(input) = declared.iter().find(is_missing) {
            return Err(NixError::NoSuchInput {
                path: input.0.clone(),
            });
        }
    }
    let lock = own("flake.lock");
    tracked.retain(|path, _| inputs.include(path, &lock));
    Ok(tracked)
}

/// The hashed text: records of a kind, a name and a value. Lengths make two different lists hash different text.
struct Manifest(Sha256);

impl Manifest {
    fn new(output: &FlakeOutput) -> Self {
        let mut manifest = Self(Sha256::new_with_prefix(HEADER));
        manifest.add("output", output.to_string().as_bytes(), b"");
        manifest
    }

    fn add(&mut self, kind: &str, name: &[u8], value: &[u8]) {
        self.0.update(format!("{kind} {} {}\n", name.len(), value.len()));
        self.0.update(name);
        self.0.update(value);
    }

    fn with_files(
        mut self,
        root: &Path,
        entries: &BTreeMap<Vec<u8>, IndexEntry>,
        known: &FileHashes,
    ) -> Result<Digest, NixError> {
        let mut used = HashTable::new();
        for (path, entry) in entries {
            let full = root.join(OsStr::from_bytes(path));
            let metadata = match fs::symlink_metadata(&full) {
                Ok(metadata) => Some(metadata),
                Err(error) if is_absent(&error) => None,
                Err(error) => return Err(NixError::file("read", &full)(error)),
            };
            match metadata {
                Some(metadata) if metadata.is_file() => {
                    let hashed = known.hash(path, &full, &FileStamp::new(&metadata));
                    let hashed = hashed.map_err(NixError::file("read", &full))?;
                    if let Some(stamp) = hashed.reusable {
                        used.insert(path.clone(), (stamp, hashed.digest));
                    }
                    let is_executable = metadata.permissions().mode() & 0o100 != 0;
                    let kind = if is_executable { "executable" } else { "file" };
                    self.add(kind, path, hashed.digest.hex().as_bytes());
                }
                Some(metadata) if metadata.is_symlink() => {
                    let target = fs::read_link(&full).map_err(NixError::file("read", &full))?;
                    self.add("link", path, target.as_os_str().as_bytes());
                }
                _ if entry.mode == GITLINK => self.add("submodule", path, &entry.id),
                // Deleted or not checked out. Nix takes a file that is not checked out from the commit.
                _ => self.add("absent", path, &entry.id),
            }
        }
        known.replace(&used);
        Ok(self.hash())
    }

    fn hash(self) -> Digest {
        Digest::from_hasher(self.0)
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
