//! Stores credentials in the system keychain, or in files that only their owner can read.

mod keychain;

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;
use zeroize::Zeroizing;

pub use keychain::Keychain;

use super::{Credential, CredentialError, CredentialKind};
use crate::atomic_file::{FileAccess, write_durably};
use crate::exec::Host;

/// Where a credential is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialLocation {
    /// In the system keychain.
    Keychain(Keychain),
    /// In a file of its own.
    File,
}

/// Stores credentials. Each is in one location: storing it in one removes it from the other.
#[derive(Clone)]
pub struct Vault {
    dir: PathBuf,
    keychain: Option<(Keychain, Host)>,
}

impl Vault {
    /// Stores credentials in files below this directory, which is created with mode 0700.
    pub fn in_files(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            keychain: None,
        }
    }

    /// Stores new credentials in this keychain. Those in files stay readable.
    #[must_use]
    pub fn with_keychain(mut self, keychain: Keychain, host: Host) -> Self {
        self.keychain = Some((keychain, host));
        self
    }

    /// Where new credentials are stored.
    #[must_use]
    pub fn default_location(&self) -> CredentialLocation {
        match &self.keychain {
            Some((keychain, _)) => CredentialLocation::Keychain(*keychain),
            None => CredentialLocation::File,
        }
    }

    /// A credential and its location; `None` when it is not stored.
    pub async fn load(
        &self,
        kind: CredentialKind,
    ) -> Result<Option<(Credential, CredentialLocation)>, CredentialError> {
        let (text, location) = match (self.read_file(kind)?, &self.keychain) {
            (Some(text), _) => (text, CredentialLocation::File),
            (None, Some((keychain, host))) => match keychain.load(host, kind).await? {
                Some(text) => (text, CredentialLocation::Keychain(*keychain)),
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let credential = serde_json::from_str(&text).map_err(|error| {
            // Its message may quote the text, so only the position is shown.
            let (line, column) = (error.line(), error.column());
            CredentialError::new(format!(
                "cannot parse the stored text of {kind} (line {line}, column {column})"
            ))
            .with_hint(kind.store_hint())
        })?;
        Ok(Some((credential, location)))
    }

    /// Stores a credential. Waits for a renewal in progress first, which would overwrite the new one.
    pub async fn store(
        &self,
        kind: CredentialKind,
        credential: &Credential,
        location: CredentialLocation,
    ) -> Result<(), CredentialError> {
        let _lock = self.lock(kind).await?;
        self.store_locked(kind, credential, location).await
    }

    /// Removes a credential from wherever it is stored.
    pub async fn remove(&self, kind: CredentialKind) -> Result<(), CredentialError> {
        let _lock = self.lock(kind).await?;
        if let Some((keychain, host)) = &self.keychain {
            keychain.remove(host, kind).await?;
        }
        remove_if_exists(&self.file(kind))?;
        self.remove_renewal_marker(kind)
    }

    /// Stores a credential while the caller holds the lock. When it fails, the previous one is still there.
    pub(super) async fn store_locked(
        &self,
        kind: CredentialKind,
        credential: &Credential,
        location: CredentialLocation,
    ) -> Result<(), CredentialError> {
        let text = stored_text(credential)
            .map_err(|error| CredentialError::new(format!("cannot encode {kind}")).with_source(error))?;
        match (location, &self.keychain) {
            (CredentialLocation::Keychain(_), Some((keychain, host))) => {
                keychain.save(host, kind, &text).await?;
                remove_if_exists(&self.file(kind))?;
            }
            (CredentialLocation::File, Some((keychain, host))) => {
                self.write_file(kind, &text)?;
                keychain.remove(host, kind).await?;
            }
            (_, None) => self.write_file(kind, &text)?,
        }
        self.remove_renewal_marker(kind)
    }

    /// Waits for the exclusive right to change this credential, over all processes of the user. It ends when the file is
    /// closed, also when the process dies.
    pub(super) async fn lock(&self, kind: CredentialKind) -> Result<fs::File, CredentialError> {
        self.create_dir()?;
        let path = self.dir.join(format!("{}.lock", kind.name));
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(CredentialError::io("open", &path))?;
        let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await;
        locked
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(CredentialError::io("lock", &path))
    }

    /// A file that exists while a renewal is in progress.
    pub(super) fn renewal_marker(&self, kind: CredentialKind) -> PathBuf {
        self.dir.join(format!("{}.refreshing", kind.name))
    }

    /// Records that no renewal is in progress.
    pub(super) fn remove_renewal_marker(&self, kind: CredentialKind) -> Result<(), CredentialError> {
        remove_if_exists(&self.renewal_marker(kind))
    }

    /// The file of a credential.
    #[must_use]
    pub fn file(&self, kind: CredentialKind) -> PathBuf {
        self.dir.join(format!("{}.json", kind.name))
    }

    fn read_file(&self, kind: CredentialKind) -> Result<Option<String>, CredentialError> {
        let path = self.file(kind);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CredentialError::io("read", &path)(error)),
        };
        let mode = fs::metadata(&path).map_err(CredentialError::io("read", &path))?;
        if mode.permissions().mode() & 0o077 != 0 {
            let path = path.display();
            let error = CredentialError::new(format!("other users can read the credential in `{path}`"));
            return Err(error.with_hint(format!(
                "revoke the credential at its service, run `chmod 600 {path}` and store a new one"
            )));
        }
        Ok(Some(text))
    }

    fn write_file(&self, kind: CredentialKind, text: &str) -> Result<(), CredentialError> {
        self.create_dir()?;
        let path = self.file(kind);
        let written = || {
            // Created with mode 0600, and renamed when it is complete and on disk.
            write_durably(&path, text.as_bytes(), FileAccess::Private)?;
            fs::File::open(&self.dir)?.sync_all()
        };
        written().map_err(CredentialError::io("write", &path))
    }

    fn create_dir(&self) -> Result<(), CredentialError> {
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&self.dir);
        made.map_err(CredentialError::io("create", &self.dir))
    }
}

/// The stored form of a credential. A [`Secret`](crate::secret::Secret) cannot be serialised by itself.
#[derive(Serialize)]
struct StoredCredential<'a> {
    token: &'a str,
    expires: Option<Timestamp>,
    refresh: Option<StoredRefreshToken<'a>>,
}

#[derive(Serialize)]
struct StoredRefreshToken<'a> {
    token: &'a str,
    scopes: &'a [String],
}

/// The text to store: one line of JSON. It is wiped from memory when dropped.
fn stored_text(credential: &Credential) -> Result<Zeroizing<String>, serde_json::Error> {
    let refresh = credential.refresh.as_ref();
    let stored = StoredCredential {
        token: credential.token.expose(),
        expires: credential.expires,
        refresh: refresh.map(|refresh| StoredRefreshToken {
            token: refresh.token.expose(),
            scopes: &refresh.scopes,
        }),
    };
    serde_json::to_string(&stored).map(Zeroizing::new)
}

fn remove_if_exists(path: &Path) -> Result<(), CredentialError> {
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
        Credential::new(Secret::new(text))
    }

    #[tokio::test]
    async fn only_the_owner_can_read_a_file() {
        let home = tempfile::tempdir().unwrap();
        let vault = Vault::in_files(home.path().join("credentials"));
        let kind = crate::model::OPENAI_KEY;
        assert!(vault.load(kind).await.unwrap().is_none());
        for value in ["sk-first-0123", "sk-second-0123"] {
            vault
                .store(kind, &key(value), CredentialLocation::File)
                .await
                .unwrap();
            let (stored, location) = vault.load(kind).await.unwrap().unwrap();
            assert_eq!(
                (stored.token.expose(), location),
                (value, CredentialLocation::File)
            );
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&vault.file(kind)), 0o600);
        assert_eq!(mode(&home.path().join("credentials")), 0o700);

        fs::set_permissions(vault.file(kind), fs::Permissions::from_mode(0o644)).unwrap();
        let error = vault.load(kind).await.unwrap_err();
        assert!(error.to_string().starts_with("other users can read"), "{error}");
    }

    #[tokio::test]
    async fn an_error_does_not_repeat_the_content_of_a_file() {
        let home = tempfile::tempdir().unwrap();
        let vault = Vault::in_files(home.path());
        let path = vault.file(crate::model::GATEWAY_KEY);
        for text in [
            r#"{"token": CANARY"#,
            r#""CANARY""#,
            r#"{"token": "t", "refresh": "CANARY"}"#,
        ] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let error = vault.load(crate::model::GATEWAY_KEY).await.unwrap_err();
            assert!(!format!("{error:?}").contains("CANARY"), "{error:?}");
        }
    }
}
