//! One refresh at a time, over all processes of this user. The kernel lets go of the lock when its holder dies.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::CredentialError;

/// The right to refresh, held until it is dropped or the process ends.
pub(super) struct Lock(#[expect(dead_code, reason = "holding it is what it is for")] File);

impl Lock {
    /// Waits until nobody else has it.
    pub(super) async fn take(path: PathBuf) -> Result<Self, CredentialError> {
        let waiting = tokio::task::spawn_blocking(move || {
            let file = open(&path).map_err(CredentialError::io("open", &path))?;
            flock(&file, FlockOperation::LockExclusive)
                .map_err(|error| CredentialError::io("lock", &path)(error.into()))?;
            Ok(Self(file))
        });
        match waiting.await {
            Ok(taken) => taken,
            Err(error) => Err(CredentialError::io("lock", "credentials")(io::Error::other(
                error,
            ))),
        }
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
