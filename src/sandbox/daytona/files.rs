//! The files of a sandbox, which are far away: bytes by the toolbox's own calls, everything else by small scripts.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use reqwest::multipart::Part;
use reqwest::{Body, Response};
use tempfile::NamedTempFile;

use super::DaytonaError;
use super::toolbox::Toolbox;
use super::wire::FileInfo;
use crate::sandbox::{DirEntry, SandboxError};

/// The bits of a mode that are permissions.
const PERMISSIONS: u32 = 0o7777;

const PLACE: &str = include_str!("place.sh");
const APPEND: &str = include_str!("append.sh");
const STAT: &str = include_str!("stat.sh");
const REMOVE: &str = include_str!("remove.sh");
const MKDIR: &str = "mkdir -p -- \"$1\" 2>/dev/null || exit 20";

/// What the scripts end with is the number of an error of the system; these have the same number everywhere.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;

/// The files of one sandbox.
#[derive(Debug)]
pub(super) struct RemoteFiles {
    pub(super) toolbox: Toolbox,
    /// What paths are relative to, and do not lead out of.
    pub(super) root: PathBuf,
    /// Where files are put before they are moved in whole.
    pub(super) staging: PathBuf,
}

/// Why a file operation failed.
#[derive(Debug)]
pub(super) enum FilesError {
    /// For a reason that has nothing to do with the way there.
    Plain(SandboxError),
    /// Daytona failed.
    Daytona(DaytonaError),
}

impl From<DaytonaError> for FilesError {
    fn from(error: DaytonaError) -> Self {
        Self::Daytona(error)
    }
}

/// What is done with which file, for messages.
type Deed<'a> = (&'static str, &'a Path);

impl RemoteFiles {
    pub(super) async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, FilesError> {
        let (mut response, _) = self.open(("read", path), limit).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = next(&mut response).await? {
            bytes.extend_from_slice(&piece);
            within(limit, bytes.len() as u64, path)?;
        }
        Ok(bytes)
    }

    pub(super) async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), FilesError> {
        self.place(("write", path), Part::bytes(bytes.to_owned()), mode)
            .await
    }

    pub(super) async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), FilesError> {
        let target = self.resolve(path)?;
        let aside = self.aside();
        self.toolbox.put(&aside, Part::bytes(bytes.to_owned())).await?;
        self.run(("append to", path), APPEND, &[&text(&aside), &text(&target)])
            .await
            .map(drop)
    }

    pub(super) async fn list(&self, path: &Path) -> Result<Vec<DirEntry>, FilesError> {
        let deed = ("list", path);
        let listed = match self.toolbox.list(&self.resolve(path)?).await {
            Err(error) => {
                let number = match error.status() {
                    Some(400 | 404) => ENOENT,
                    Some(403) => EACCES,
                    _ => return Err(error.into()),
                };
                // The same answer comes from a sandbox that is gone; the caller looks.
                self.toolbox.script("true", &[]).await?;
                return Err(failed(deed, io::Error::from_raw_os_error(number)));
            }
            listed => listed?,
        };
        let mut entries = listed
            .into_iter()
            .map(entry_of)
            .collect::<io::Result<Vec<DirEntry>>>()
            .map_err(|error| failed(deed, error))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    pub(super) async fn mkdir(&self, path: &Path) -> Result<(), FilesError> {
        let target = self.resolve(path)?;
        self.run(("make the directory", path), MKDIR, &[&text(&target)])
            .await
            .map(drop)
    }

    pub(super) async fn remove(&self, path: &Path) -> Result<(), FilesError> {
        let target = self.resolve(path)?;
        if target == self.root {
            return Err(failed(("remove", path), io::ErrorKind::InvalidInput.into()));
        }
        self.run(("remove", path), REMOVE, &[&text(&target)])
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
        self.place(("upload to", to), part, mode).await
    }

    pub(super) async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), FilesError> {
        let (mut response, mode) = self.open(("download", from), limit).await?;
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

    /// Puts bytes where nobody looks.
    pub(super) async fn stage(&self, bytes: &[u8]) -> Result<PathBuf, DaytonaError> {
        let aside = self.aside();
        self.toolbox.put(&aside, Part::bytes(bytes.to_owned())).await?;
        Ok(aside)
    }

    /// Brings bytes in, then to where they belong, so that nobody sees half of them.
    async fn place(&self, deed: Deed<'_>, bytes: Part, mode: u32) -> Result<(), FilesError> {
        let target = self.resolve(deed.1)?;
        let aside = self.aside();
        self.toolbox.put(&aside, bytes).await?;
        let bits = format!("{:o}", mode & PERMISSIONS);
        self.run(deed, PLACE, &[&text(&aside), &text(&target), &bits])
            .await
            .map(drop)
    }

    /// The bytes of a file, once it is sure that it is one and not too long, and its permission bits.
    async fn open(&self, deed: Deed<'_>, limit: u64) -> Result<(Response, u32), FilesError> {
        let target = self.resolve(deed.1)?;
        let told = self.run(deed, STAT, &[&text(&target)]).await?;
        let (length, mode) = told
            .trim()
            .split_once(' ')
            .and_then(|(length, mode)| Some((length.parse().ok()?, u32::from_str_radix(mode, 8).ok()?)))
            .ok_or_else(|| failed(deed, io::ErrorKind::InvalidData.into()))?;
        within(limit, length, deed.1)?;
        Ok((self.toolbox.get(&target).await?, mode))
    }

    /// Runs a script that ends with the number of an error.
    async fn run(&self, deed: Deed<'_>, script: &str, args: &[&str]) -> Result<String, FilesError> {
        let done = self.toolbox.script(script, args).await?;
        match done.exit_code {
            0 => Ok(done.result),
            number => Err(failed(deed, io::Error::from_raw_os_error(number))),
        }
    }

    /// The absolute path that a path means, as it is written; where links lead is the sandbox's own affair.
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
            Err(FilesError::Plain(SandboxError::outside(path)))
        }
    }

    fn aside(&self) -> PathBuf {
        self.staging.join(format!("{:016x}", fastrand::u64(..)))
    }
}

async fn next(response: &mut Response) -> Result<Option<bytes::Bytes>, DaytonaError> {
    let piece = response.chunk().await;
    piece.map_err(|source| DaytonaError::Unreachable {
        call: "the bytes of a file".to_owned(),
        source: source.without_url(),
    })
}

fn within(limit: u64, length: u64, path: &Path) -> Result<(), FilesError> {
    if length <= limit {
        return Ok(());
    }
    Err(FilesError::Plain(SandboxError::too_long(path, limit)))
}

fn failed((operation, path): Deed<'_>, source: io::Error) -> FilesError {
    FilesError::Plain(SandboxError::file(operation, path, source))
}

fn on_host(operation: &'static str, path: &Path, source: io::Error) -> FilesError {
    FilesError::Plain(SandboxError::host(operation, path, source))
}

fn entry_of(info: FileInfo) -> io::Result<DirEntry> {
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
