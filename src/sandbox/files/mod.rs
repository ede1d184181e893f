//! The files of a sandbox whose workspace is a directory of the host.

mod lookup;
mod remove;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, fchown, openat, renameat, statat};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use self::lookup::{LookupMode, ResolvedPath, RootDir, create_dir, open_dir};
pub(super) use self::remove::remove_all;
use self::remove::remove_tree;
use super::{DirEntry, SandboxError, SandboxFiles};

/// The mode of a file that is created by appending to it.
const DEFAULT_MODE: u32 = 0o644;

/// The permission bits of a mode.
pub(super) const PERMISSIONS: u32 = 0o7777;

/// Why a file operation failed, before the caller adds names.
#[derive(Debug)]
enum FileError {
    /// The path leads out of the root.
    Outside,
    /// The root does not exist.
    Gone,
    /// The file is longer than the limit.
    TooLong { limit: u64 },
    /// The file on the host failed, not the one in the sandbox.
    Host(SandboxError),
    /// Any other error.
    Io(io::Error),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// The owner of files, if that is not the user of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileOwner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl FileOwner {
    fn give(self, file: impl AsFd) -> Result<(), Errno> {
        fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }
}

/// The files of one sandbox.
#[derive(Clone, Debug)]
pub(super) struct WorkspaceFiles {
    /// The name of the sandbox, for messages.
    sandbox: String,
    /// The path of the workspace inside.
    root: PathBuf,
    /// The workspace on the host.
    host: RootDir,
    /// A host directory on the same file system, outside the workspace.
    staging: PathBuf,
}

impl WorkspaceFiles {
    /// `root` is the path of the workspace inside, `workspace` its path on the host.
    pub(super) fn new(sandbox: &str, root: PathBuf, workspace: PathBuf, staging: PathBuf) -> Self {
        Self {
            sandbox: sandbox.to_owned(),
            root,
            host: RootDir {
                path: workspace,
                owner: None,
            },
            staging,
        }
    }

    /// Sets the owner of new files.
    pub(super) fn owned_by(mut self, owner: Option<FileOwner>) -> Self {
        self.host.owner = owner;
        self
    }

    /// The path of the workspace inside.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Calls `work` with a path relative to the root, on a thread that may block.
    async fn with<T: Send + 'static>(
        &self,
        operation: &'static str,
        path: &Path,
        work: impl FnOnce(&Self, &Path) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let relative = if path.is_absolute() {
            path.strip_prefix(&self.root)
                .map_err(|_| SandboxError::outside(path))?
        } else {
            path
        };
        let (files, relative) = (self.clone(), relative.to_owned());
        tokio::task::spawn_blocking(move || work(&files, &relative))
            .await
            .unwrap_or_else(|error| Err(FileError::Io(io::Error::other(error))))
            .map_err(|error| self.error(operation, path, error))
    }

    fn error(&self, operation: &'static str, path: &Path, error: FileError) -> SandboxError {
        match error {
            FileError::Outside => SandboxError::outside(path),
            FileError::Gone => SandboxError::gone(&self.sandbox),
            FileError::TooLong { limit } => SandboxError::too_long(path, limit),
            FileError::Host(error) => error,
            FileError::Io(error) => SandboxError::file(operation, path, error),
        }
    }

    fn give(&self, file: &File) -> Result<(), Errno> {
        self.host.owner.map_or(Ok(()), |owner| owner.give(file))
    }

    fn open_to_read(&self, path: &Path, limit: u64) -> Result<(File, u64), FileError> {
        let target = self.host.resolve(path, LookupMode::Follow)?;
        match regular_file(open_file(&target, OFlags::RDONLY)?)? {
            (_, length) if length > limit => Err(FileError::TooLong { limit }),
            file => Ok(file),
        }
    }

    /// Replaces a file atomically: writes a temporary file outside the workspace and moves it there.
    fn replace(
        &self,
        path: &Path,
        mode: u32,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), FileError> {
        let target = self.host.resolve(path, LookupMode::FollowAndCreate)?;
        let mut staged = NamedTempFile::new_in(&self.staging)?;
        fill(staged.as_file_mut())?;
        self.give(staged.as_file())?;
        // After the owner, because changing the owner clears some bits.
        staged.as_file().set_permissions(permissions(mode))?;
        renameat(rustix::fs::CWD, staged.path(), &target.dir, &target.name)?;
        Ok(())
    }
}

#[async_trait]
impl SandboxFiles for WorkspaceFiles {
    async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, SandboxError> {
        self.with("read", path, move |files, path| {
            let (file, length) = files.open_to_read(path, limit)?;
            let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
            // It may have grown since its length was checked.
            match file.take(limit.saturating_add(1)).read_to_end(&mut bytes)? as u64 {
                read if read > limit => Err(FileError::TooLong { limit }),
                _ => Ok(bytes),
            }
        })
        .await
    }

    async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), SandboxError> {
        let bytes = bytes.to_owned();
        self.with("write", path, move |files, path| {
            files.replace(path, mode, |file| file.write_all(&bytes))
        })
        .await
    }

    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        let bytes = bytes.to_owned();
        self.with("append to", path, move |files, path| {
            let target = files.host.resolve(path, LookupMode::FollowAndCreate)?;
            let append = OFlags::WRONLY | OFlags::APPEND;
            let mut file = match open_file(&target, append | OFlags::CREATE | OFlags::EXCL) {
                Ok(file) => {
                    file.set_permissions(permissions(DEFAULT_MODE))?;
                    files.give(&file)?;
                    file
                }
                Err(Errno::EXIST) => regular_file(open_file(&target, append)?)?.0,
                Err(error) => return Err(error.into()),
            };
            Ok(file.write_all(&bytes)?)
        })
        .await
    }

    async fn list(&self, path: &Path) -> Result<Vec<DirEntry>, SandboxError> {
        self.with("list", path, |files, path| {
            let target = files.host.resolve(path, LookupMode::Follow)?;
            let dir = open_dir(target.dir.as_fd(), &target.name)?;
            let mut entries = Vec::new();
            for name in names(dir.as_fd())? {
                match statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => entries.push(dir_entry(&name.to_string_lossy(), &stat)?),
                    Err(Errno::NOENT) => {} // Removed since the directory was read.
                    Err(error) => return Err(error.into()),
                }
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        })
        .await
    }

    async fn mkdir(&self, path: &Path) -> Result<(), SandboxError> {
        self.with("create the directory", path, |files, path| {
            let target = files.host.resolve(path, LookupMode::FollowAndCreate)?;
            create_dir(target.dir.as_fd(), &target.name, files.host.owner)?;
            open_dir(target.dir.as_fd(), &target.name)?;
            Ok(())
        })
        .await
    }

    async fn remove(&self, path: &Path) -> Result<(), SandboxError> {
        self.with("remove", path, |files, path| {
            match files.host.resolve(path, LookupMode::KeepLink) {
                Ok(target) if target.name == "." => Err(io::Error::from(io::ErrorKind::InvalidInput).into()),
                Ok(target) => Ok(remove_tree(target.dir.as_fd(), &target.name)?),
                Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await
    }

    async fn upload(&self, from: &Path, to: &Path) -> Result<(), SandboxError> {
        let from = from.to_owned();
        self.with("upload to", to, move |files, to| {
            let mut source = File::open(&from).map_err(|error| host_error("read", &from, error))?;
            let mode = source.metadata()?.mode();
            files.replace(to, mode, |file| io::copy(&mut source, file).map(drop))
        })
        .await
    }

    async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), SandboxError> {
        let to = to.to_owned();
        self.with("download", from, move |files, from| {
            let (file, _) = files.open_to_read(from, limit)?;
            let mode = file.metadata()?.mode();
            let dir = to.parent().unwrap_or(Path::new("."));
            let written = |error| host_error("write", &to, error);
            let mut copy = NamedTempFile::new_in(dir).map_err(written)?;
            let copied = io::copy(&mut file.take(limit.saturating_add(1)), copy.as_file_mut());
            if copied.map_err(written)? > limit {
                return Err(FileError::TooLong { limit });
            }
            // Not the bits that let others act as the owner of the copy.
            let bits = permissions(mode & 0o777);
            copy.as_file().set_permissions(bits).map_err(written)?;
            copy.persist(&to).map_err(|error| written(error.error))?;
            Ok(())
        })
        .await
    }
}

fn host_error(operation: &str, path: &Path, error: io::Error) -> FileError {
    FileError::Host(SandboxError::host(operation, path, error))
}

/// The names in a directory, without `.` and `..`.
fn names(dir: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    Dir::read_from(dir)?
        .map(|entry| Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned()))
        .filter(|name| !matches!(name, Ok(name) if name == "." || name == ".."))
        .collect()
}

/// Opens a file without waiting, as opening a named pipe would.
fn open_file(target: &ResolvedPath, flags: OFlags) -> Result<File, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(&target.dir, &target.name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

fn permissions(mode: u32) -> Permissions {
    Permissions::from_mode(mode & PERMISSIONS)
}

/// The file and its length. Fails for pipes, devices and directories.
fn regular_file(file: File) -> io::Result<(File, u64)> {
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata.len()))
    } else if metadata.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

fn dir_entry(name: &str, stat: &Stat) -> io::Result<DirEntry> {
    let nanoseconds = i32::try_from(stat.st_mtime_nsec).unwrap_or_default();
    #[allow(
        clippy::useless_conversion,
        reason = "the width differs from system to system"
    )]
    let mode = u32::from(stat.st_mode);
    Ok(DirEntry {
        name: name.to_owned(),
        is_dir: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        mode: mode & PERMISSIONS,
        mod_time: jiff::Timestamp::new(stat.st_mtime, nanoseconds).map_err(io::Error::other)?,
    })
}
