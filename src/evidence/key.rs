//! Ed25519 keys: the host's own, which signs, and public ones. Both are PEM files that `openssl` reads.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use zeroize::Zeroizing;

use super::error::EvidenceKeyError;
use crate::atomic_file::{FileAccess, create_durably};
use crate::digest::Digest;
use crate::secret::Secret;

/// The DER of an Ed25519 private key (PKCS #8, version 1) before its seed.
const PRIVATE_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// The DER of an Ed25519 public key (`SubjectPublicKeyInfo`) before its bytes.
const PUBLIC_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// The length of a seed and of a public key.
const KEY_BYTES: usize = 32;
const PRIVATE: &str = "PRIVATE KEY";
const PUBLIC: &str = "PUBLIC KEY";

/// The key of this host. It signs evidence. Clones share it.
#[derive(Clone)]
pub struct SigningKey {
    pair: Arc<Ed25519KeyPair>,
    /// The base64 text of the private key, as its file holds it.
    private: Secret,
}

/// Shows the key id only.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public().id())
    }
}

impl SigningKey {
    /// Reads the key of this host. The first caller creates it, readable by this user only; of two that create it at the
    /// same time both get the same key.
    pub fn load_or_create(path: &Path) -> Result<Self, EvidenceKeyError> {
        match Self::load(path) {
            Err(EvidenceKeyError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let failed = file_error("create", path);
                let pem = pem(PRIVATE, Self::generate().map_err(&failed)?.private.expose());
                create_durably(path, Zeroizing::new(pem).as_bytes(), FileAccess::Private).map_err(&failed)?;
                Self::load(path)
            }
            loaded => loaded,
        }
    }

    fn load(path: &Path) -> Result<Self, EvidenceKeyError> {
        let failed = file_error("read", path);
        let text = Zeroizing::new(fs::read_to_string(path).map_err(&failed)?);
        let mode = fs::metadata(path).map_err(&failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            let path = path.to_owned();
            return Err(EvidenceKeyError::Readable { path, mode });
        }
        let der = decode(PRIVATE, &text).map(Zeroizing::new);
        let seed = der.as_ref().and_then(|der| der.strip_prefix(&PRIVATE_PREFIX));
        seed.and_then(Self::from_seed)
            .ok_or_else(|| EvidenceKeyError::NotPrivate(path.to_owned()))
    }

    /// Makes a new key that is in no file.
    pub fn generate() -> io::Result<Self> {
        let mut seed = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(&mut *seed).map_err(|error| io::Error::other(error.to_string()))?;
        Self::from_seed(&*seed).ok_or_else(|| io::Error::other("the seed is not a key"))
    }

    fn from_seed(seed: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let der = Zeroizing::new([&PRIVATE_PREFIX, seed].concat());
        Some(Self {
            pair: Arc::new(pair),
            private: Secret::new(STANDARD.encode(&*der)),
        })
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> VerifyingKey {
        let mut bytes = [0; KEY_BYTES];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        VerifyingKey(bytes)
    }

    /// The private key as its file holds it, for a redactor.
    #[must_use]
    pub fn private(&self) -> Secret {
        self.private.clone()
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

/// A public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyingKey([u8; KEY_BYTES]);

impl VerifyingKey {
    /// Parses a PEM file (`SubjectPublicKeyInfo`). `name` is its name, for messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, EvidenceKeyError> {
        let refused = |reason| EvidenceKeyError::NotPublic {
            name: name.to_owned(),
            reason,
        };
        if text.contains("PRIVATE KEY-----") {
            return Err(refused("it is a private key, which must not be shared"));
        }
        let der = decode(PUBLIC, text).ok_or_else(|| refused("expected one `BEGIN PUBLIC KEY` block"))?;
        let bytes = der.strip_prefix(&PUBLIC_PREFIX);
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(Self)
            .ok_or_else(|| refused("the key is of another kind"))
    }

    /// The key as a PEM file.
    #[must_use]
    pub fn pem(&self) -> String {
        pem(PUBLIC, &STANDARD.encode(self.der()))
    }

    /// The id: the SHA-256 digest of its DER.
    #[must_use]
    pub fn id(&self) -> Digest {
        Digest::sha256(&self.der())
    }

    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0)
            .verify(message, signature)
            .is_ok()
    }

    fn der(&self) -> Vec<u8> {
        [&PUBLIC_PREFIX[..], &self.0].concat()
    }
}

fn file_error(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> EvidenceKeyError {
    move |source| EvidenceKeyError::File {
        operation,
        path: path.to_owned(),
        source,
    }
}

/// Both kinds of keys fit in one line.
fn pem(label: &str, base64: &str) -> String {
    format!("-----BEGIN {label}-----\n{base64}\n-----END {label}-----\n")
}

/// The content of a file with one PEM block and nothing else.
fn decode(label: &str, text: &str) -> Option<Vec<u8>> {
    let body = text
        .trim()
        .strip_prefix(&format!("-----BEGIN {label}-----"))?
        .strip_suffix(&format!("-----END {label}-----"))?;
    let base64: Zeroizing<String> = Zeroizing::new(body.split_whitespace().collect());
    STANDARD.decode(base64.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_host_has_one_key_that_only_its_user_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data/evidence-key.pem");
        let ids: Vec<Digest> = std::thread::scope(|scope| {
            let load = || SigningKey::load_or_create(&path).unwrap().public().id();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = SigningKey::load_or_create(&path).unwrap_err();
        assert!(matches!(refused, EvidenceKeyError::Readable { mode: 0o640, .. }));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "not a key").unwrap();
        let refused = SigningKey::load_or_create(&path).unwrap_err();
        assert!(matches!(refused, EvidenceKeyError::NotPrivate(_)));
    }

    #[test]
    fn a_private_key_is_not_printed() {
        let key = SigningKey::generate().unwrap();
        let shown = format!("{key:?} {:?}", key.private());
        assert!(!shown.contains(key.private().expose()), "{shown}");
        assert!(shown.contains(&key.public().id().to_string()), "{shown}");
    }

    #[test]
    fn a_public_key_is_read_back_and_other_text_is_refused() {
        let key = SigningKey::generate().unwrap();
        let public = key.public();
        assert_eq!(VerifyingKey::parse("k", &public.pem()).unwrap(), public);
        let with_windows_ends = public.pem().replace('\n', "\r\n");
        assert_eq!(VerifyingKey::parse("k", &with_windows_ends).unwrap(), public);
        let private = pem(PRIVATE, key.private().expose());
        let short = pem(PUBLIC, &STANDARD.encode(PUBLIC_PREFIX));
        let two = public.pem() + &public.pem();
        for wrong in ["", "text", &private, &short, &two] {
            assert!(VerifyingKey::parse("k", wrong).is_err(), "{wrong}");
        }
    }
}
