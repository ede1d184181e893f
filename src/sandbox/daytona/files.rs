//! The files of a remote sandbox: the toolbox transfers bytes, small scripts do everything else.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use reqwest::multipart::Part;
use reqwest::{Body, Response};
use tempfile::NamedTempFile;

use super::DaytonaError;
use super::toolbox::Toolbox;
use super::wire::ToolboxFileInfo;
use crate::sandbox::{DirEntry, SandboxError};

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

const PLACE: &str = include_str!("place.sh");
const APPEND: &str = include_str!("append.sh");
const STAT: &str = include_str!("stat.sh");
const REMOVE: &str = include_str!("remove.sh");
const MKDIR: &str = "mkdir -p -- \"$1\" 2>/dev/null || exit 20";

/// The exit code of a script is an error number. These are the same on all systems.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;

/// The files of one sandbox.
#[derive(Debug)]
pub(super) struct RemoteFiles {
    pub(super) toolbox: Toolbox,
    /// Paths are relative to this directory, and must not lead out of it.
    pub(super) root: PathBuf,
    /// The directory for uploads before they are moved to their path.
    pub(super) staging: PathBuf,
}

/// Why a file operation failed.
#[derive(Debug)]
pub(super) enum FilesError {
    /// The operation itself failed.
    Operation(SandboxError),
    /// The call to Daytona failed.
    Daytona(DaytonaError),
}

impl From<DaytonaError> for FilesError {
    fn from(error: DaytonaError) -> Self {
        Self::Daytona(error)
    }
}

impl RemoteFiles {
    pub(super) async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, FilesError> {
        let (mut response, _) = self.open("read", path, limit).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = next(&mut response).await? {
            bytes.extend_from_slice(&piece);
            within(limit, bytes.len() as u64, path)?;
        }
        Ok(bytes)
    }

    pub(super) async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), FilesError> {
        self.place("write", path, Part::bytes(bytes.to_owned()), mode)
            .await
    }

    pub(super) async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), FilesError> {
        let target = self.resolve(path)?;
        let staged = self.stage(bytes).await?;
        self.run("append to", path, APPEND, &[&text(&staged), &text(&target)])
            .await
            .map(drop)
    }

    pub(super) async fn list(&self, path: &Path) -> Result<Vec<DirEntry>, FilesError> {
        let listed = match self.toolbox.list(&self.resolve(path)?).await {
            Err(error) => {
                let number = match error.status() {
                    Some(400 | 404) => ENOENT,
                    Some(403) => EACCES,
                    _ => return Err(error.into()),
                };
                // A removed sandbox responds in the same way; then this call fails, too.
                self.toolbox.script("true", &[]).await?;
                return Err(failed("list", path, io::Error::from_raw_os_error(number)));
            }
            listed => listed?,
        };
        let mut entries = listed
            .into_iter()
            .map(to_entry)
            .collect::<io::Result<Vec<DirEntry>>>()
            .map_err(|error| failed("list", path, error))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    pub(super) async fn mkdir(&self, path: &Path) -> Result<(), FilesError> {
        let target = self.resolve(path)?;
        self.run("make the directory", path, MKDIR, &[&text(&target)])
            .await
            .map(drop)
    }

    pub(super) async fn remove(&self, path: &Path) -> Result<(), FilesError> {
        let target = self.resolve(path)?;
        if target == self.root {
            return Err(failed("remove", path, io::ErrorKind::InvalidInput.into()));
        }
        self.run("remove", path, REMOVE, &[&text(&target)])
            .await
            .map(drop)
    }

    pub(super) async fn upload(&self, from: &Path, to: &Path) -> Result<(), FilesError> {
        let opened = async {
            let file = tokio::fs::File::open(from).await?;
            let metadata = file.metadata().await?;
            io::Result::Ok((file, metadata.len(), metadata.permissions().mode()))
        };
        let (file, length, mode) = opened.await.map_err(|source| on_host("read", from, source))?;
        let part = Part::stream_with_length(Body::from(file), length);
        self.place("upload to", to, part, mode).await
    }

    pub(super) async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), FilesError> {
        let (mut response, mode) = self.open("download", from, limit).await?;
        let beside = to.parent().unwrap_or(Path::new("."));
        let written = |source| on_host("write", to, source);
        let mut copy = NamedTempFile::new_in(beside).map_err(written)?;
        let mut length = 0;
        while let Some(piece) = next(&mut response).await? {
            length += piece.len() as u64;
            within(limit, length, from)?;
            copy.write_all(&piece).map_err(written)?;
        }
        let permissions = Permissions::from_mode(mode & PERMISSIONS);
        copy.as_file().set_permissions(permissions).map_err(written)?;
        copy.persist(to).map_err(|error| written(error.error))?;
        Ok(())
    }

    /// Uploads bytes to the staging directory.
    pub(super) async fn stage(&self, bytes: &[u8]) -> Result<PathBuf, DaytonaError> {
        let staged = self.staging_path();
        self.toolbox.put(&staged, Part::bytes(bytes.to_owned())).await?;
        Ok(staged)
    }

    /// Uploads bytes and moves them to their path, so that a file never has a part of its content.
    async fn place(&self, operation: &str, path: &Path, bytes: Part, mode: u32) -> Result<(), FilesError> {
        let target = self.resolve(path)?;
        let staged = self.staging_path();
        self.toolbox.put(&staged, bytes).await?;
        let bits = format!("{:o}", mode & PERMISSIONS);
        self.run(operation, path, PLACE, &[&text(&staged), &text(&target), &bits])
            .await
            .map(drop)
    }

    /// Checks the type and length of a file, and opens it. Returns its content and its permission bits.
    async fn open(&self, operation: &str, path: &Path, limit: u64) -> Result<(Response, u32), FilesError> {
        let target = self.resolve(path)?;
        let stat = self.run(operation, path, STAT, &[&text(&target)]).await?;
        let (length, mode) = stat
            .trim()
            .split_once(' ')
            .and_then(|(length, mode)| Some((length.parse().ok()?, u32::from_str_radix(mode, 8).ok()?)))
            .ok_or_else(|| failed(operation, path, io::ErrorKind::InvalidData.into()))?;
        within(limit, length, path)?;
        Ok((self.toolbox.get(&target).await?, mode))
    }

    /// Runs a script whose exit code is an error number.
    async fn run(
        &self,
        operation: &str,
        path: &Path,
        script: &str,
        args: &[&str],
    ) -> Result<String, FilesError> {
        let done = self.toolbox.script(script, args).await?;
        match done.exit_code {
            0 => Ok(done.result),
            errno => Err(failed(operation, path, io::Error::from_raw_os_error(errno))),
        }
    }

    /// The absolute path, resolved by its text alone. Symlinks are resolved inside the sandbox, which isolates them.
    fn resolve(&self, path: &Path) -> Result<PathBuf, FilesError> {
        let mut target = PathBuf::new();
        for part in self.root.join(path).components() {
            match part {
                Component::ParentDir => {
                    target.pop();
                }
                Component::CurDir => {}
                Component::RootDir | Component::Normal(_) | Component::Prefix(_) => target.push(part),
            }
        }
        if target.starts_with(&self.root) {
            Ok(target)
        } else {
            Err(FilesError::Operation(SandboxError::outside(path)))
        }
    }

    fn staging_path(&self) -> PathBuf {
        self.staging.join(format!("{:016x}", fastrand::u64(..)))
    }
}

async fn next(response: &mut Response) -> Result<Option<bytes::Bytes>, DaytonaError> {
    let piece = response.chunk().await;
    piece.map_err(|source| DaytonaError::Unreachable {
        call: "download a file".to_owned(),
        source: source.without_url(),
    })
}

fn within(limit: u64, length: u64, path: &Path) -> Result<(), FilesError> {
    if length <= limit {
        return Ok(());
    }
    Err(FilesError::Operation(SandboxError::too_long(path, limit)))
}

fn failed(operation: &str, path: &Path, source: io::Error) -> FilesError {
    FilesError::Operation(SandboxError::file(operation, path, source))
}

fn on_host(operation: &'static str, path: &Path, source: io::Error) -> FilesError {
    FilesError::Operation(SandboxError::host(operation, path, source))
}

fn to_entry(info: ToolboxFileInfo) -> io::Result<DirEntry> {
    let mode = u32::from_str_radix(&info.permissions, 8).map_err(io::Error::other)?;
    Ok(DirEntry {
        name: info.name,
        is_dir: info.is_dir,
        size: info.size,
        mode: mode & PERMISSIONS,
        mod_time: info.modified_at,
    })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
