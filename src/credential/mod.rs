//! Credentials of model services: how they look, where they are stored, and how a login is renewed.
//!
//! A real credential is a [`Secret`] that only the gateway handles, never a sandbox. A [`Vault`] stores it in the
//! system keychain or, on hosts without one, in a file that only its owner can read. A [`Login`] renews a credential
//! that expires. It is the only user of the refresh token, across all runs and processes of the user.

mod error;
mod login;
mod pasted;
mod vault;

use jiff::Timestamp;
use serde::Deserialize;

use crate::secret::{Redactor, Secret};

pub use crate::model::{AuthMethod, CredentialKind, UnknownAuthMethod};
pub use error::{CredentialError, LoginError};
pub use login::{Login, TokenServer};
pub use pasted::{MalformedCredential, find_setup_token, parse};
pub use vault::{CredentialLocation, Keychain, Vault};

/// A credential and its lifetime. It can be read from its stored form; only the [`Vault`] writes that.
#[derive(Clone, Debug, Deserialize)]
pub struct Credential {
    /// The key or access token that is sent to the service.
    pub token: Secret,
    /// When it expires; `None` when it does not, or the time is unknown.
    pub expires: Option<Timestamp>,
    /// Renews it; `None` when it cannot be renewed.
    pub refresh: Option<RefreshToken>,
}

impl Credential {
    /// A credential without an expiry time.
    #[must_use]
    pub fn new(token: Secret) -> Self {
        Self {
            token,
            expires: None,
            refresh: None,
        }
    }

    /// The access token and the refresh token, for a redactor.
    pub fn secrets(&self) -> impl Iterator<Item = Secret> + use<> {
        let refresh = self.refresh.as_ref().map(|refresh| refresh.token.clone());
        std::iter::once(self.token.clone()).chain(refresh)
    }

    /// Whether it has expired at this time.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
}

/// Renews an access token. It can be used once: the response contains the next one.
#[derive(Clone, Debug, Deserialize)]
pub struct RefreshToken {
    /// The refresh token itself.
    pub token: Secret,
    /// The OAuth scopes of the login.
    pub scopes: Vec<String>,
}

/// Where the gateway gets a credential from, for each request.
#[derive(Clone)]
pub enum CredentialSource {
    /// A value that never changes, for example from the environment.
    Fixed(Secret),
    /// A stored credential that is renewed before it expires.
    Stored(Login),
}

impl CredentialSource {
    /// The credential to send now.
    pub async fn current(&self) -> Result<Secret, LoginError> {
        match self {
            Self::Fixed(secret) => Ok(secret.clone()),
            Self::Stored(login) => login.current().await,
        }
    }

    /// Adds the credential, and every later renewal of it, to a redactor.
    pub fn register_secrets(&self, redactor: &Redactor) {
        match self {
            Self::Fixed(secret) => redactor.learn([secret.clone()]),
            Self::Stored(login) => login.register_secrets(redactor),
        }
    }

    /// Records that the service refused it: a stored one is read again before its next use.
    pub async fn invalidate(&self) {
        if let Self::Stored(login) = self {
            login.invalidate().await;
        }
    }
}
