//! How a credential is kept: a form of its own, so that a change of the program does not change it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Credential, Refresh};
use crate::secret::Secret;

#[derive(Serialize)]
struct Written<'a> {
    token: &'a str,
    expires: Option<Timestamp>,
    refresh: Option<WrittenRefresh<'a>>,
}

#[derive(Serialize)]
struct WrittenRefresh<'a> {
    token: &'a str,
    scopes: &'a [String],
}

#[derive(Deserialize)]
struct Read {
    token: Secret,
    expires: Option<Timestamp>,
    refresh: Option<ReadRefresh>,
}

#[derive(Deserialize)]
struct ReadRefresh {
    token: Secret,
    scopes: Vec<String>,
}

/// One line of JSON.
pub(super) fn write(credential: &Credential) -> Result<Zeroizing<String>, serde_json::Error> {
    let refresh = credential.refresh.as_ref().map(|refresh| WrittenRefresh {
        token: refresh.token.expose(),
        scopes: &refresh.scopes,
    });
    let written = Written {
        token: credential.token.expose(),
        expires: credential.expires,
        refresh,
    };
    serde_json::to_string(&written).map(Zeroizing::new)
}

/// Reads what [`write`] wrote.
pub(super) fn read(text: &str) -> Result<Credential, serde_json::Error> {
    let read: Read = serde_json::from_str(text)?;
    Ok(Credential {
        token: read.token,
        expires: read.expires,
        refresh: read.refresh.map(|refresh| Refresh {
            token: refresh.token,
            scopes: refresh.scopes,
        }),
    })
}
