//! Where credentials are kept: the system's keychain, or a file that only its owner can read.

mod keychain;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub use keychain::Keychain;

use super::lock::Lock;
use super::{Credential, CredentialError, Kind, wire};
use crate::exec::Host;

/// Where one credential is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the system's keychain.
    Keychain(Keychain),
    /// In a file of its own.
    File,
}

/// Keeps credentials. Each is in one place: storing it in one takes it out of the other.
#[derive(Clone)]
pub struct Vault {
    dir: PathBuf,
    keychain: Option<(Keychain, Host)>,
}

impl Vault {
    /// Keeps credentials in files below this directory, which others cannot enter.
    pub fn files(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            keychain: None,
        }
    }

    /// Keeps them in this keychain, whose program the host starts; those that are in files stay readable.
    #[must_use]
    pub fn with_keychain(mut self, keychain: Keychain, host: Host) -> Self {
        self.keychain = Some((keychain, host));
        self
    }

    /// Where new credentials go.
    #[must_use]
    pub fn place(&self) -> Place {
        match &self.keychain {
            Some((keychain, _)) => Place::Keychain(*keychain),
            None => Place::File,
        }
    }

    /// A credential and where it is; `None` when it is nowhere.
    pub async fn load(&self, kind: Kind) -> Result<Option<(Credential, Place)>, CredentialError> {
        let (text, place) = match (self.read_file(kind)?, &self.keychain) {
            (Some(text), _) => (text, Place::File),
            (None, Some((keychain, host))) => match keychain.load(host, kind).await? {
                Some(text) => (text, Place::Keychain(*keychain)),
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let credential = wire::read(&text).map_err(|source| CredentialError::Unreadable { kind, source })?;
        Ok(Some((credential, place)))
    }

    /// Keeps a credential that its owner hands over, after any renewal of the old one that goes on: it would be saved
    /// over the new one.
    pub async fn store(
        &self,
        kind: Kind,
        credential: &Credential,
        place: Place,
    ) -> Result<(), CredentialError> {
        let _turn = self.lock(kind).await?;
        self.save(kind, credential, place).await
    }

    /// Keeps a credential there and nowhere else. It is there whole, or what was there before still is.
    pub async fn save(
        &self,
        kind: Kind,
        credential: &Credential,
        place: Place,
    ) -> Result<(), CredentialError> {
        let text = wire::write(credential).map_err(|source| CredentialError::Unreadable { kind, source })?;
        match (place, &self.keychain) {
            (Place::Keychain(_), Some((keychain, host))) => {
                keychain.save(host, kind, &text).await?;
                remove(&self.file(kind))?;
            }
            (Place::File, Some((keychain, host))) => {
                self.write_file(kind, &text)?;
                keychain.remove(host, kind).await?;
            }
            (_, None) => self.write_file(kind, &text)?,
        }
        remove(&self.refreshing(kind))
    }

    /// Waits for the right to change this credential, over all processes.
    pub(super) async fn lock(&self, kind: Kind) -> Result<Lock, CredentialError> {
        self.make_dir()?;
        Lock::take(self.dir.join(format!("{}.lock", kind.name()))).await
    }

    /// The file that says that a refresh is under way.
    pub(super) fn refreshing(&self, kind: Kind) -> PathBuf {
        self.dir.join(format!("{}.refreshing", kind.name()))
    }

    /// The file of a credential.
    #[must_use]
    pub fn file(&self, kind: Kind) -> PathBuf {
        self.dir.join(format!("{}.json", kind.name()))
    }

    fn read_file(&self, kind: Kind) -> Result<Option<String>, CredentialError> {
        let path = self.file(kind);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CredentialError::io("read", path)(error)),
        };
        let mode = fs::metadata(&path).map_err(CredentialError::io("read", &path))?;
        if mode.permissions().mode() & 0o077 != 0 {
            return Err(CredentialError::Exposed { path });
        }
        Ok(Some(text))
    }

    fn write_file(&self, kind: Kind, text: &str) -> Result<(), CredentialError> {
        self.make_dir()?;
        let path = self.file(kind);
        let written = || {
            // Made with 0600, and in place only when it is whole and on disk.
            let mut temp = tempfile::NamedTempFile::new_in(&self.dir)?;
            temp.write_all(text.as_bytes())?;
            temp.as_file().sync_all()?;
            temp.persist(&path)?;
            fs::File::open(&self.dir)?.sync_all()
        };
        written().map_err(CredentialError::io("write", &path))
    }

    fn make_dir(&self) -> Result<(), CredentialError> {
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&self.dir);
        made.map_err(CredentialError::io("create", &self.dir))
    }
}

/// Removes a file that may not be there.
fn remove(path: &Path) -> Result<(), CredentialError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CredentialError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn key(text: &str) -> Credential {
        Credential::lasting(Secret::new(text))
    }

    #[tokio::test]
    async fn a_file_is_its_owners_alone() {
        let home = tempfile::tempdir().unwrap();
        let vault = Vault::files(home.path().join("credentials"));
        let kind = Kind::OpenAiKey;
        assert!(vault.load(kind).await.unwrap().is_none());
        for value in ["sk-first-0123", "sk-second-0123"] {
            vault.save(kind, &key(value), Place::File).await.unwrap();
            let (kept, place) = vault.load(kind).await.unwrap().unwrap();
            assert_eq!((kept.token.expose(), place), (value, Place::File));
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&vault.file(kind)), 0o600);
        assert_eq!(mode(&home.path().join("credentials")), 0o700);

        fs::set_permissions(vault.file(kind), fs::Permissions::from_mode(0o644)).unwrap();
        let error = vault.load(kind).await.unwrap_err();
        assert!(matches!(error, CredentialError::Exposed { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_file_that_is_no_credential_is_not_repeated() {
        let home = tempfile::tempdir().unwrap();
        let vault = Vault::files(home.path());
        let path = vault.file(Kind::GatewayKey);
        fs::write(&path, "{\"token\": CANARY").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = vault.load(Kind::GatewayKey).await.unwrap_err();
        assert!(!format!("{error:?}").contains("CANARY"), "{error:?}");
    }
}
