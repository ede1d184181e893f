//! Renews a stored login before it expires. A refresh token can be used once, so only one process renews at a time.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::{StatusCode, Url};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::{
    Credential, CredentialError, CredentialKind, CredentialLocation, LoginError, RefreshToken, Vault,
};
use crate::clock::Clock;
use crate::secret::{Redactor, Secret};

/// How long before its expiry a token is renewed.
const RENEW_AHEAD: SignedDuration = SignedDuration::from_mins(5);
/// Timeout of a request to the token server.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two failed renewals while the access token is still valid.
const RETRY_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// The OAuth client of `claude`. A refresh token works for this client only.
const CLIENT_ID: &str = "9d1c250a-e61b-44d9-88ed-5944d1962f5e";

/// The server that renews access tokens.
#[derive(Clone, Debug)]
pub struct TokenServer {
    /// The address of its token endpoint.
    pub url: Url,
    /// The client that sends the requests.
    pub http: reqwest::Client,
}

impl TokenServer {
    /// The token endpoint of Claude logins.
    pub const ANTHROPIC: &str = "https://platform.claude.com/v1/oauth/token";
}

/// A stored credential that is renewed before it expires, once for all runs and processes that use it.
///
/// Clones share their state.
#[derive(Clone)]
pub struct Login(Arc<SharedLogin>);

struct SharedLogin {
    kind: CredentialKind,
    vault: Vault,
    server: TokenServer,
    clock: Arc<dyn Clock>,
    cached: Mutex<Option<CachedToken>>,
    /// Every token is added to these.
    redactors: std::sync::Mutex<Vec<Redactor>>,
}

/// A token, and the time until which it is used without reading the vault.
struct CachedToken {
    token: Secret,
    until: Timestamp,
}

impl CachedToken {
    fn new(credential: Credential) -> Self {
        Self {
            until: fresh_until(&credential),
            token: credential.token,
        }
    }
}

impl Login {
    /// The stored credential of this kind.
    #[must_use]
    pub fn new(kind: CredentialKind, vault: Vault, server: TokenServer, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(SharedLogin {
            kind,
            vault,
            server,
            clock,
            cached: Mutex::default(),
            redactors: std::sync::Mutex::default(),
        }))
    }

    /// Adds every token that is read or renewed from now on to a redactor, before its first use.
    pub fn register_secrets(&self, redactor: &Redactor) {
        let mut redactors = self.0.redactors.lock().unwrap_or_else(PoisonError::into_inner);
        redactors.push(redactor.clone());
    }

    /// The token to send now.
    pub async fn current(&self) -> Result<Secret, LoginError> {
        // Spawned, so that a cancelled caller does not interrupt a renewal: the new refresh token would be lost.
        let shared = self.0.clone();
        let current = tokio::spawn(async move { shared.current().await }).await;
        current.unwrap_or_else(|error| {
            let file = self.0.vault.file(self.0.kind);
            Err(CredentialError::io("renew", &file)(io::Error::other(error)).into())
        })
    }

    /// Clears the cache. The credential is read again before its next use, since another process may have changed it.
    pub async fn invalidate(&self) {
        *self.0.cached.lock().await = None;
    }
}

impl SharedLogin {
    async fn current(&self) -> Result<Secret, LoginError> {
        // Held during a renewal, so that other callers of this process wait for it.
        let mut cached = self.cached.lock().await;
        let now = self.clock.now();
        if let Some(cached) = cached.as_ref().filter(|cached| now < cached.until) {
            return Ok(cached.token.clone());
        }
        let (stored, _) = self.load().await?;
        let current = if now < fresh_until(&stored) {
            CachedToken::new(stored)
        } else {
            self.renew().await?
        };
        Ok(cached.insert(current).token.clone())
    }

    /// Renews the credential, unless another process did so while this one waited for the lock.
    async fn renew(&self) -> Result<CachedToken, LoginError> {
        let _lock = self.vault.lock(self.kind).await?;
        let (stored, location) = self.load().await?;
        if self.clock.now() < fresh_until(&stored) {
            return Ok(CachedToken::new(stored));
        }
        let Some(refresh) = &stored.refresh else {
            return Err(LoginError::Expired(self.kind));
        };
        let marker = self.vault.renewal_marker(self.kind);
        let was_interrupted = marker.exists();
        create_marker(&marker)?;
        match self.refresh(refresh).await {
            Ok(credential) => {
                self.redact(&credential);
                // Stored before its first use, because the old refresh token is no longer valid.
                self.vault.store_locked(self.kind, &credential, location).await?;
                Ok(CachedToken::new(credential))
            }
            // During an outage of the token server, and after a refusal, the old access token is used until it expires.
            Err(mut error) => {
                if matches!(error, LoginError::Refused { .. }) {
                    if was_interrupted {
                        error = LoginError::UsedUp(self.kind);
                    } else {
                        // The server answered, so this attempt is not why the next one is refused.
                        self.vault.remove_renewal_marker(self.kind)?;
                    }
                }
                let now = self.clock.now();
                if stored.is_expired(now) {
                    return Err(error);
                }
                let retry_at = now + RETRY_INTERVAL;
                Ok(CachedToken {
                    token: stored.token,
                    until: stored.expires.map_or(retry_at, |end| end.min(retry_at)),
                })
            }
        }
    }

    async fn refresh(&self, refresh: &RefreshToken) -> Result<Credential, LoginError> {
        let unavailable = |source: reqwest::Error| LoginError::Unavailable {
            kind: self.kind,
            source: source.without_url(),
        };
        let body = RefreshRequest {
            grant_type: "refresh_token",
            refresh_token: refresh.token.expose(),
            client_id: CLIENT_ID,
            scope: refresh.scopes.join(" "),
        };
        let post = self.server.http.post(self.server.url.clone()).json(&body);
        let response = post.timeout(TIMEOUT).send().await.map_err(unavailable)?;
        let status = response.status();
        if matches!(
            status,
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        ) {
            return Err(LoginError::Refused {
                kind: self.kind,
                status: status.as_u16(),
            });
        }
        let response = response.error_for_status().map_err(unavailable)?;
        let renewed: RefreshResponse = response.json().await.map_err(unavailable)?;
        Ok(Credential {
            token: renewed.access_token,
            expires: Some(self.clock.now() + SignedDuration::from_secs(renewed.expires_in.into())),
            refresh: Some(RefreshToken {
                token: renewed.refresh_token.unwrap_or_else(|| refresh.token.clone()),
                scopes: refresh.scopes.clone(),
            }),
        })
    }

    async fn load(&self) -> Result<(Credential, CredentialLocation), LoginError> {
        let loaded = self.vault.load(self.kind).await?;
        let (credential, location) = loaded.ok_or(LoginError::Missing(self.kind))?;
        self.redact(&credential);
        Ok((credential, location))
    }

    fn redact(&self, credential: &Credential) {
        let redactors = self.redactors.lock().unwrap_or_else(PoisonError::into_inner);
        for redactor in redactors.iter() {
            redactor.learn(credential.secrets());
        }
    }
}

/// When it has to be renewed, or, if it cannot be renewed, when it expires.
fn fresh_until(credential: &Credential) -> Timestamp {
    let ahead = match credential.refresh {
        Some(_) => RENEW_AHEAD,
        None => SignedDuration::ZERO,
    };
    let end = credential.expires.unwrap_or(Timestamp::MAX);
    end.checked_sub(ahead).unwrap_or(Timestamp::MIN)
}

/// Records on disk that the refresh token is about to be used. If this process dies, the next one knows why it is refused.
fn create_marker(path: &Path) -> Result<(), CredentialError> {
    let created = fs::File::create(path).and_then(|file| file.sync_all());
    created.map_err(CredentialError::io("create", path))
}

#[derive(Serialize)]
struct RefreshRequest<'a> {
    grant_type: &'static str,
    refresh_token: &'a str,
    client_id: &'static str,
    scope: String,
}

#[derive(Deserialize)]
struct RefreshResponse {
    access_token: Secret,
    refresh_token: Option<Secret>,
    expires_in: u32,
}
