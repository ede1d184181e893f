//! Allows one change of a credential at a time, over all processes of the user.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::CredentialError;

/// The exclusive right to change a credential. The kernel releases it when the process dies.
pub(super) struct CredentialLock(#[expect(dead_code, reason = "the open file holds the lock")] File);

impl CredentialLock {
    /// Waits until no other process holds the lock.
    pub(super) async fn acquire(path: PathBuf) -> Result<Self, CredentialError> {
        let file = path.clone();
        tokio::task::spawn_blocking(move || {
            let file = open(&path).map_err(CredentialError::io("open", &path))?;
            flock(&file, FlockOperation::LockExclusive)
                .map_err(|error| CredentialError::io("lock", &path)(error.into()))?;
            Ok(Self(file))
        })
        .await
        .unwrap_or_else(|error| Err(CredentialError::io("lock", file)(io::Error::other(error))))
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}
