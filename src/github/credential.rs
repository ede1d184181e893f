//! The credentials that ralph uses at GitHub: a token, or an App that gets short-lived tokens.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use super::error::GitHubError;
use crate::digest::Digest;
use crate::secret::Secret;

/// How far in the past a JWT begins, for a clock of this host that is ahead of GitHub's.
const BACKDATED: SignedDuration = SignedDuration::from_secs(60);
/// How long a JWT is valid. GitHub accepts at most ten minutes from its own time.
const VALID: SignedDuration = SignedDuration::from_secs(8 * 60);

/// How ralph authenticates.
#[derive(Debug)]
pub enum GitHubCredential {
    /// A personal access token, or a token of `gh auth token`.
    Token(Secret),
    /// An App, which creates tokens for one of its installations.
    App(Box<GitHubApp>),
}

impl GitHubCredential {
    /// A name for the credential that does not reveal it.
    pub(crate) fn fingerprint(&self) -> Digest {
        match self {
            Self::Token(token) => Digest::sha256(format!("token {}", token.expose()).as_bytes()),
            Self::App(app) => Digest::sha256(format!("app {} {}", app.id, app.installation).as_bytes()),
        }
    }
}

/// A GitHub App and one of its installations.
pub struct GitHubApp {
    id: String,
    /// The id of the installation. It changes when the App is installed again.
    pub(super) installation: String,
    key: RsaKeyPair,
}

impl std::fmt::Debug for GitHubApp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GitHubApp({}, installation {})", self.id, self.installation)
    }
}

impl GitHubApp {
    /// The App with this id, installation id and private key (PEM, PKCS #1 or PKCS #8).
    pub fn new(id: &str, installation: &str, private_key: &Secret) -> Result<Self, GitHubError> {
        let refused = |error: &dyn std::fmt::Display| GitHubError::AppKey(error.to_string());
        let pem = private_key.expose().as_bytes();
        let key = match PrivateKeyDer::from_pem_slice(pem).map_err(|error| refused(&error))? {
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            _ => return Err(refused(&"it is not an RSA key")),
        };
        Ok(Self {
            id: id.to_owned(),
            installation: installation.to_owned(),
            key: key.map_err(|error| refused(&error))?,
        })
    }

    /// A JWT that is accepted as this App for some minutes.
    pub(super) fn jwt(&self, now: Timestamp) -> Result<Secret, GitHubError> {
        let claims = json!({
            "iat": (now - BACKDATED).as_second(),
            "exp": (now + VALID).as_second(),
            "iss": self.id,
        });
        let encode = |part: &str| BASE64_URL_SAFE_NO_PAD.encode(part);
        let signed = format!(
            "{}.{}",
            encode(r#"{"alg":"RS256","typ":"JWT"}"#),
            encode(&claims.to_string())
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                signed.as_bytes(),
                &mut signature,
            )
            .map_err(|_| GitHubError::AppKey("it cannot sign".to_owned()))?;
        Ok(Secret::new(format!(
            "{signed}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(signature)
        )))
    }
}
