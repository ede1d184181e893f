//! The stored form of a credential: one line of JSON. It is separate from [`Credential`], which can change freely.

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroizing;

use super::{Credential, RefreshToken};
use crate::secret::Secret;

#[derive(Serialize, Deserialize)]
struct StoredCredential {
    #[serde(serialize_with = "expose")]
    token: Secret,
    expires: Option<Timestamp>,
    refresh: Option<StoredRefreshToken>,
}

#[derive(Serialize, Deserialize)]
struct StoredRefreshToken {
    #[serde(serialize_with = "expose")]
    token: Secret,
    scopes: Vec<String>,
}

fn expose<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

/// The text to store. It is wiped from memory when dropped.
pub(super) fn to_json(credential: &Credential) -> Result<Zeroizing<String>, serde_json::Error> {
    let Credential {
        token,
        expires,
        refresh,
    } = credential.clone();
    let refresh = refresh.map(|RefreshToken { token, scopes }| StoredRefreshToken { token, scopes });
    serde_json::to_string(&StoredCredential {
        token,
        expires,
        refresh,
    })
    .map(Zeroizing::new)
}

/// Parses what [`to_json`] wrote.
pub(super) fn from_json(text: &str) -> Result<Credential, serde_json::Error> {
    let StoredCredential {
        token,
        expires,
        refresh,
    } = serde_json::from_str(text)?;
    let refresh = refresh.map(|StoredRefreshToken { token, scopes }| RefreshToken { token, scopes });
    Ok(Credential {
        token,
        expires,
        refresh,
    })
}
