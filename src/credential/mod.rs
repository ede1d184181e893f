//! Credentials of model services: what they look like, where they are kept, and how a login stays fresh.
//!
//! A real credential is a [`Secret`] in the hands of the gateway, never of a sandbox. A [`Vault`] keeps it in the
//! system's keychain or, on machines without one, in a file that only its owner can read. A login that expires is kept
//! by a [`Login`], which alone uses its refresh token: once for all runs and processes of this user.

mod error;
mod kind;
mod lock;
mod login;
mod pasted;
mod vault;
mod wire;

use jiff::Timestamp;

use crate::secret::{Redactor, Secret};

pub use error::{CredentialError, LoginError};
pub use kind::{Auth, Kind, UnknownAuth};
pub use login::{Login, TokenServer};
pub use pasted::{Malformed, find_setup_token, parse};
pub use vault::{Keychain, Place, Vault};

/// A credential and how long it is good for.
#[derive(Clone, Debug)]
pub struct Credential {
    /// What is sent.
    pub token: Secret,
    /// When it ends; `None` where it does not, or nobody said.
    pub expires: Option<Timestamp>,
    /// What a new one is got with.
    pub refresh: Option<Refresh>,
}

impl Credential {
    /// One that does not end by itself.
    #[must_use]
    pub fn lasting(token: Secret) -> Self {
        Self {
            token,
            expires: None,
            refresh: None,
        }
    }

    /// Everything of it that must not be seen.
    pub fn secrets(&self) -> impl Iterator<Item = Secret> + use<> {
        let refresh = self.refresh.as_ref().map(|refresh| refresh.token.clone());
        std::iter::once(self.token.clone()).chain(refresh)
    }

    /// Whether it can no longer be used as it is.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
}

/// What a new access token is got with. It is good for one use: whoever uses it gets the next one.
#[derive(Clone, Debug)]
pub struct Refresh {
    /// The refresh token.
    pub token: Secret,
    /// What the login is for.
    pub scopes: Vec<String>,
}

/// Where the gateway gets a credential from, call by call.
#[derive(Clone)]
pub enum Source {
    /// It is what it is; for example from the environment.
    Fixed(Secret),
    /// It is kept, and refreshed before it ends.
    Kept(Login),
}

impl Source {
    /// The credential to send now.
    pub async fn current(&self) -> Result<Secret, LoginError> {
        match self {
            Self::Fixed(secret) => Ok(secret.clone()),
            Self::Kept(login) => login.current().await,
        }
    }

    /// Lets a redactor know what it is, and whatever it becomes.
    pub fn tell(&self, redactor: &Redactor) {
        match self {
            Self::Fixed(secret) => redactor.learn([secret.clone()]),
            Self::Kept(login) => login.tell(redactor),
        }
    }

    /// Takes note that it was refused: a kept one is read again before its next use.
    pub async fn refused(&self) {
        if let Self::Kept(login) = self {
            login.forget().await;
        }
    }
}
