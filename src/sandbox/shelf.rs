//! The files of a sandbox whose workspace is a directory of this machine, by the paths that are seen inside.

use std::io;
use std::path::{Component, Path, PathBuf};

use async_trait::async_trait;

use super::files::{FileError, Files};
use super::{DirEntry, SandboxError, SandboxFiles};

/// The files of one sandbox.
#[derive(Debug)]
pub(super) struct Shelf {
    /// What to call the sandbox in messages.
    pub(super) sandbox: String,
    /// Where the workspace is inside.
    pub(super) root: PathBuf,
    /// The workspace on this machine.
    pub(super) files: Files,
}

#[async_trait]
impl SandboxFiles for Shelf {
    async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, SandboxError> {
        self.with("read", path, move |files, path| files.read(path, limit))
            .await
    }

    async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), SandboxError> {
        let bytes = bytes.to_owned();
        self.with("write", path, move |files, path| files.write(path, &bytes, mode))
            .await
    }

    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        let bytes = bytes.to_owned();
        self.with("append to", path, move |files, path| files.append(path, &bytes))
            .await
    }

    async fn list(&self, path: &Path) -> Result<Vec<DirEntry>, SandboxError> {
        self.with("list", path, Files::list).await
    }

    async fn mkdir(&self, path: &Path) -> Result<(), SandboxError> {
        self.with("make the directory", path, Files::mkdir).await
    }

    async fn remove(&self, path: &Path) -> Result<(), SandboxError> {
        self.with("remove", path, Files::remove).await
    }

    async fn upload(&self, from: &Path, to: &Path) -> Result<(), SandboxError> {
        let from = from.to_owned();
        self.with("upload to", to, move |files, to| files.upload(&from, to))
            .await
    }

    async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), SandboxError> {
        let to = to.to_owned();
        self.with("download", from, move |files, from| {
            files.download(from, &to, limit)
        })
        .await
    }
}

impl Shelf {
    /// The path below the workspace that a path inside means.
    fn below<'p>(&self, path: &'p Path) -> Result<&'p Path, SandboxError> {
        let below = if path.is_absolute() {
            path.strip_prefix(&self.root).ok()
        } else {
            Some(path)
        };
        below
            .filter(|below| !below.components().any(|part| part == Component::RootDir))
            .ok_or_else(|| SandboxError::outside(path))
    }

    /// Does something with the files where waiting for a disk holds nobody up.
    async fn with<T: Send + 'static>(
        &self,
        operation: &'static str,
        path: &Path,
        work: impl FnOnce(&Files, &Path) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let (files, below) = (self.files.clone(), self.below(path)?.to_owned());
        tokio::task::spawn_blocking(move || work(&files, &below))
            .await
            .unwrap_or_else(|error| Err(FileError::Io(io::Error::other(error))))
            .map_err(|error| error.named(operation, path, &self.sandbox))
    }
}
