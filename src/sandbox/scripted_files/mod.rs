//! The files of a sandbox that this host does not see: its provider transfers bytes, small scripts do everything else.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tempfile::NamedTempFile;

use super::files::PERMISSIONS;
use super::{DirEntry, SandboxError, SandboxFiles};

const PLACE: &str = include_str!("place.sh");
const APPEND: &str = include_str!("append.sh");
const STAT: &str = include_str!("stat.sh");
const REMOVE: &str = include_str!("remove.sh");
const MKDIR: &str = "mkdir -p -- \"$1\" 2>/dev/null || exit 20";

/// The content of a file, in pieces.
pub(super) type FileContent<'a> = Pin<Box<dyn Stream<Item = Result<Bytes, SandboxError>> + Send + 'a>>;

/// What is written to a sandbox.
pub(super) enum FileSource {
    Bytes(Vec<u8>),
    /// A file of the host, and its length.
    File(tokio::fs::File, u64),
}

/// The result of a script.
pub(super) struct ScriptResult {
    /// Zero, or an error number. Those that scripts use are the same on all systems.
    pub(super) exit_code: i32,
    pub(super) output: String,
    /// What it printed as errors, cut.
    pub(super) errors: String,
}

/// Runs scripts in a sandbox, and transfers bytes. What implements it has [`SandboxFiles`].
#[async_trait]
pub(super) trait ScriptedFiles: Send + Sync {
    /// The directory that all paths are in.
    fn files_root(&self) -> &Path;

    /// Runs a shell script to its end.
    async fn run_script(&self, script: &str, args: &[&str]) -> Result<ScriptResult, SandboxError>;

    /// Writes bytes to a new file on the disk of the root, and returns its path.
    async fn stage(&self, source: FileSource) -> Result<String, SandboxError>;

    /// Opens a file, following symlinks.
    async fn open_file(&self, target: &str) -> Result<FileContent<'_>, SandboxError>;

    /// The entries of the directory at `target`, in any order. `path` is for errors.
    async fn entries(&self, path: &Path, target: &str) -> Result<Vec<DirEntry>, SandboxError>;
}

#[async_trait]
impl<S: ScriptedFiles> SandboxFiles for S {
    async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, SandboxError> {
        let mut bytes = Vec::new();
        let receive = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        fetch(self, "read", path, limit, receive).await?;
        Ok(bytes)
    }

    async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), SandboxError> {
        place(self, "write", path, FileSource::Bytes(bytes.to_owned()), mode).await
    }

    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        let target = resolve(self.files_root(), path)?;
        let staged = self.stage(FileSource::Bytes(bytes.to_owned())).await?;
        change(self, "append to", path, APPEND, &[&staged, &target]).await
    }

    async fn list(&self, path: &Path) -> Result<Vec<DirEntry>, SandboxError> {
        let target = resolve(self.files_root(), path)?;
        let mut entries = self.entries(path, &target).await?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    async fn mkdir(&self, path: &Path) -> Result<(), SandboxError> {
        let target = resolve(self.files_root(), path)?;
        change(self, "make the directory", path, MKDIR, &[&target]).await
    }

    async fn remove(&self, path: &Path) -> Result<(), SandboxError> {
        let target = resolve(self.files_root(), path)?;
        if Path::new(&target) == self.files_root() {
            let invalid = io::ErrorKind::InvalidInput.into();
            return Err(SandboxError::file("remove", path, invalid));
        }
        change(self, "remove", path, REMOVE, &[&target]).await
    }

    async fn upload(&self, from: &Path, to: &Path) -> Result<(), SandboxError> {
        let opened = async {
            let file = tokio::fs::File::open(from).await?;
            let metadata = file.metadata().await?;
            io::Result::Ok((file, metadata.len(), metadata.permissions().mode()))
        };
        let (file, length, mode) = opened
            .await
            .map_err(|source| SandboxError::host("read", from, source))?;
        place(self, "upload to", to, FileSource::File(file, length), mode).await
    }

    async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), SandboxError> {
        let beside = to.parent().unwrap_or(Path::new("."));
        let written = |source| SandboxError::host("write", to, source);
        let mut copy = NamedTempFile::new_in(beside).map_err(written)?;
        let receive = |piece: &[u8]| copy.write_all(piece).map_err(written);
        let mode = fetch(self, "download", from, limit, receive).await?;
        // Not the bits that let others act as the owner of the copy.
        let permissions = Permissions::from_mode(mode & 0o777);
        copy.as_file().set_permissions(permissions).map_err(written)?;
        copy.persist(to).map_err(|error| written(error.error))?;
        Ok(())
    }
}

/// Writes bytes and moves them to their path, so that a file never has a part of its content.
async fn place<S: ScriptedFiles>(
    files: &S,
    operation: &str,
    path: &Path,
    source: FileSource,
    mode: u32,
) -> Result<(), SandboxError> {
    let target = resolve(files.files_root(), path)?;
    let staged = files.stage(source).await?;
    let bits = format!("{:o}", mode & PERMISSIONS);
    change(files, operation, path, PLACE, &[&staged, &target, &bits]).await
}

/// Checks the type and length of a file and passes its content on in pieces. Returns its mode.
async fn fetch<S: ScriptedFiles>(
    files: &S,
    operation: &str,
    path: &Path,
    limit: u64,
    mut receive: impl FnMut(&[u8]) -> Result<(), SandboxError> + Send,
) -> Result<u32, SandboxError> {
    let target = resolve(files.files_root(), path)?;
    let stat = run(files, operation, path, STAT, &[&target]).await?;
    let (length, mode) = parse_stat(&stat)
        .ok_or_else(|| SandboxError::file(operation, path, io::ErrorKind::InvalidData.into()))?;
    within(limit, length, path)?;
    let mut content = files.open_file(&target).await?;
    let mut received = 0;
    while let Some(piece) = content.next().await {
        let piece = piece?;
        received += piece.len() as u64;
        within(limit, received, path)?;
        receive(&piece)?;
    }
    if received < length {
        let ended = io::ErrorKind::UnexpectedEof.into();
        return Err(SandboxError::file(operation, path, ended));
    }
    Ok(mode)
}

/// The length and the permission bits of a file, as the script prints them.
pub(super) fn parse_stat(printed: &str) -> Option<(u64, u32)> {
    let (length, mode) = printed.trim().split_once(' ')?;
    Some((length.parse().ok()?, u32::from_str_radix(mode, 8).ok()?))
}

async fn change<S: ScriptedFiles>(
    files: &S,
    operation: &str,
    path: &Path,
    script: &str,
    args: &[&str],
) -> Result<(), SandboxError> {
    run(files, operation, path, script, args).await.map(drop)
}

/// Runs a script whose exit code is an error number.
pub(super) async fn run<S: ScriptedFiles>(
    files: &S,
    operation: &str,
    path: &Path,
    script: &str,
    args: &[&str],
) -> Result<String, SandboxError> {
    let done = files.run_script(script, args).await?;
    match done.exit_code {
        0 => Ok(done.output),
        errno => {
            let cause = io::Error::from_raw_os_error(errno);
            Err(SandboxError::file(operation, path, cause))
        }
    }
}

/// The absolute path, resolved by its text alone. It must not lead out of the root. Symlinks are resolved inside the
/// sandbox, which isolates them.
fn resolve(root: &Path, path: &Path) -> Result<String, SandboxError> {
    let mut target = PathBuf::new();
    for part in root.join(path).components() {
        match part {
            Component::ParentDir => {
                target.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Normal(_) | Component::Prefix(_) => target.push(part),
        }
    }
    if target.starts_with(root) {
        Ok(target.to_string_lossy().into_owned())
    } else {
        Err(SandboxError::outside(path))
    }
}

fn within(limit: u64, length: u64, path: &Path) -> Result<(), SandboxError> {
    if length <= limit {
        return Ok(());
    }
    Err(SandboxError::too_long(path, limit))
}
