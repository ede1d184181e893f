//! The files of a remote sandbox: the toolbox transfers bytes, small scripts do everything else.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use async_trait::async_trait;
use reqwest::multipart::Part;
use reqwest::{Body, Response};
use tempfile::NamedTempFile;

use super::error::DaytonaError;
use super::sandbox::DaytonaSandbox;
use super::toolbox::{put_file, run_script};
use super::wire::ToolboxFileInfo;
use crate::sandbox::{DirEntry, Sandbox, SandboxError, SandboxFiles};

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

#[async_trait]
impl SandboxFiles for DaytonaSandbox {
    async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, SandboxError> {
        let (mut response, _) = self.open("read", path, limit).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = self.next(&mut response).await? {
            bytes.extend_from_slice(&piece);
            within(limit, bytes.len() as u64, path)?;
        }
        Ok(bytes)
    }

    async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), SandboxError> {
        self.place("write", path, Part::bytes(bytes.to_owned()), mode)
            .await
    }

    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        let target = self.resolve(path)?;
        let staged = self.stage(Part::bytes(bytes.to_owned())).await;
        let staged = self.explain(staged).await?;
        self.change("append to", path, APPEND, &[&staged, &target]).await
    }

    async fn list(&self, path: &Path) -> Result<Vec<DirEntry>, SandboxError> {
        let target = self.resolve(path)?;
        let call = self.toolbox.get("files").query(&[("path", &target)]);
        let listed = call.json::<Vec<ToolboxFileInfo>>().await;
        let failed = |error| SandboxError::file("list", path, error);
        let errno = match listed.as_ref().map_err(DaytonaError::status) {
            Err(Some(400 | 404)) => Some(ENOENT),
            Err(Some(403)) => Some(EACCES),
            Ok(_) | Err(_) => None,
        };
        if let Some(errno) = errno {
            // A removed sandbox responds in the same way; then this call fails, too.
            let ran = run_script(&self.toolbox, "true", &[]).await;
            self.explain(ran).await?;
            return Err(failed(io::Error::from_raw_os_error(errno)));
        }
        let entries = self.explain(listed).await?.into_iter().map(to_entry);
        let mut entries = entries.collect::<io::Result<Vec<DirEntry>>>().map_err(failed)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    async fn mkdir(&self, path: &Path) -> Result<(), SandboxError> {
        let target = self.resolve(path)?;
        self.change("make the directory", path, MKDIR, &[&target]).await
    }

    async fn remove(&self, path: &Path) -> Result<(), SandboxError> {
        let target = self.resolve(path)?;
        if Path::new(&target) == self.root() {
            let invalid = io::ErrorKind::InvalidInput.into();
            return Err(SandboxError::file("remove", path, invalid));
        }
        self.change("remove", path, REMOVE, &[&target]).await
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
        let part = Part::stream_with_length(Body::from(file), length);
        self.place("upload to", to, part, mode).await
    }

    async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), SandboxError> {
        let (mut response, mode) = self.open("download", from, limit).await?;
        let beside = to.parent().unwrap_or(Path::new("."));
        let written = |source| SandboxError::host("write", to, source);
        let mut copy = NamedTempFile::new_in(beside).map_err(written)?;
        let mut length = 0;
        while let Some(piece) = self.next(&mut response).await? {
            length += piece.len() as u64;
            within(limit, length, from)?;
            copy.write_all(&piece).map_err(written)?;
        }
        let permissions = Permissions::from_mode(mode & PERMISSIONS);
        copy.as_file().set_permissions(permissions).map_err(written)?;
        copy.persist(to).map_err(|error| written(error.error))?;
        Ok(())
    }
}

impl DaytonaSandbox {
    /// Uploads bytes to the staging directory, and returns their path there.
    pub(super) async fn stage(&self, bytes: Part) -> Result<String, DaytonaError> {
        let staged = format!("{}/{:016x}", self.staging, fastrand::u64(..));
        put_file(&self.toolbox, &staged, bytes).await?;
        Ok(staged)
    }

    /// Uploads bytes and moves them to their path, so that a file never has a part of its content.
    async fn place(&self, operation: &str, path: &Path, bytes: Part, mode: u32) -> Result<(), SandboxError> {
        let target = self.resolve(path)?;
        let staged = self.stage(bytes).await;
        let (staged, bits) = (self.explain(staged).await?, format!("{:o}", mode & PERMISSIONS));
        self.change(operation, path, PLACE, &[&staged, &target, &bits])
            .await
    }

    /// Checks the type and length of a file, and opens it. Returns its content and its permission bits.
    async fn open(&self, operation: &str, path: &Path, limit: u64) -> Result<(Response, u32), SandboxError> {
        let target = self.resolve(path)?;
        let stat = self.run(operation, path, STAT, &[&target]).await?;
        let (length, mode) = stat
            .trim()
            .split_once(' ')
            .and_then(|(length, mode)| Some((length.parse().ok()?, u32::from_str_radix(mode, 8).ok()?)))
            .ok_or_else(|| SandboxError::file(operation, path, io::ErrorKind::InvalidData.into()))?;
        within(limit, length, path)?;
        let call = self.toolbox.get("files/download");
        let response = call.query(&[("path", &target)]).send().await;
        Ok((self.explain(response).await?, mode))
    }

    async fn change(
        &self,
        operation: &str,
        path: &Path,
        script: &str,
        args: &[&str],
    ) -> Result<(), SandboxError> {
        self.run(operation, path, script, args).await.map(drop)
    }

    /// Runs a script whose exit code is an error number.
    async fn run(
        &self,
        operation: &str,
        path: &Path,
        script: &str,
        args: &[&str],
    ) -> Result<String, SandboxError> {
        let done = run_script(&self.toolbox, script, args).await;
        let done = self.explain(done).await?;
        match done.exit_code {
            0 => Ok(done.result),
            errno => {
                let cause = io::Error::from_raw_os_error(errno);
                Err(SandboxError::file(operation, path, cause))
            }
        }
    }

    /// The absolute path, resolved by its text alone. It must not lead out of the root. Symlinks are resolved inside the
    /// sandbox, which isolates them.
    fn resolve(&self, path: &Path) -> Result<String, SandboxError> {
        let mut target = PathBuf::new();
        for part in self.root().join(path).components() {
            match part {
                Component::ParentDir => {
                    target.pop();
                }
                Component::CurDir => {}
                Component::RootDir | Component::Normal(_) | Component::Prefix(_) => target.push(part),
            }
        }
        if target.starts_with(self.root()) {
            Ok(target.to_string_lossy().into_owned())
        } else {
            Err(SandboxError::outside(path))
        }
    }

    /// The next piece of a download.
    async fn next(&self, response: &mut Response) -> Result<Option<bytes::Bytes>, SandboxError> {
        let piece = response.chunk().await;
        let piece = piece.map_err(|error| DaytonaError::unreachable("download a file", error));
        self.explain(piece).await
    }
}

fn within(limit: u64, length: u64, path: &Path) -> Result<(), SandboxError> {
    if length <= limit {
        return Ok(());
    }
    Err(SandboxError::too_long(path, limit))
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
