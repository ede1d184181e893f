//! A login that ends, kept fresh by one party: the refresh token changes with each use, and the old one is worthless.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::{StatusCode, Url};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::{Credential, CredentialError, Kind, LoginError, Place, Refresh, Vault};
use crate::clock::Clock;
use crate::secret::{Redactor, Secret};

/// How long before its end a token is renewed.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);
/// How long the token server may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long after a failed renewal the next one is tried, while the token can still be used.
const BETWEEN_TRIES: SignedDuration = SignedDuration::from_secs(30);
/// The client that Claude's logins are made with; a refresh token is good for that one only.
const CLIENT_ID: &str = "9d1c250a-e61b-44d9-88ed-5944d1962f5e";

/// Where access tokens are renewed.
#[derive(Clone, Debug)]
pub struct TokenServer {
    /// Its address.
    pub url: Url,
    /// Who speaks to it.
    pub http: reqwest::Client,
}

impl TokenServer {
    /// Where the logins of Claude are renewed.
    pub const ANTHROPIC: &str = "https://platform.claude.com/v1/oauth/token";
}

/// A credential that is kept, and renewed before it ends: once, however many runs and processes use it.
///
/// Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Login(Arc<Keeper>);

struct Keeper {
    kind: Kind,
    vault: Vault,
    server: TokenServer,
    clock: Arc<dyn Clock>,
    known: Mutex<Option<Known>>,
    /// Who must never show a token of it.
    redactors: std::sync::Mutex<Vec<Redactor>>,
}

/// What was last found out.
struct Known {
    credential: Credential,
    /// Until when it is used although it should be renewed: that was tried and failed.
    bridged_until: Option<Timestamp>,
}

impl Login {
    /// The kept credential of this kind.
    #[must_use]
    pub fn new(kind: Kind, vault: Vault, server: TokenServer, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Keeper {
            kind,
            vault,
            server,
            clock,
            known: Mutex::default(),
            redactors: std::sync::Mutex::default(),
        }))
    }

    /// Tells this redactor every token that is read or renewed from now on, before anybody uses it.
    pub fn tell(&self, redactor: &Redactor) {
        let mut redactors = self.0.redactors.lock().unwrap_or_else(PoisonError::into_inner);
        redactors.push(redactor.clone());
    }

    /// The token to send now.
    pub async fn current(&self) -> Result<Secret, LoginError> {
        // Whoever asked may go away at any time. A renewal is never left half done by that: the old refresh token would
        // be worthless and the new one lost.
        let keeper = self.0.clone();
        let found = tokio::spawn(async move { keeper.current().await }).await;
        found.unwrap_or_else(|error| {
            let file = self.0.vault.file(self.0.kind);
            Err(CredentialError::io("renew", file)(io::Error::other(error)).into())
        })
    }

    /// Reads the credential again before its next use: another process, or its owner, may have changed it.
    pub async fn forget(&self) {
        *self.0.known.lock().await = None;
    }
}

impl Keeper {
    async fn current(&self) -> Result<Secret, LoginError> {
        // Held while refreshing, so that within this process everybody waits for the one who does.
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| self.is_good(known)) {
            return Ok(known.credential.token.clone());
        }
        let (stored, _) = self.load().await?;
        let found = if self.is_fresh(&stored) {
            Known {
                credential: stored,
                bridged_until: None,
            }
        } else {
            self.renewed().await?
        };
        let token = found.credential.token.clone();
        *known = Some(found);
        Ok(token)
    }

    /// Renews it, unless another process has by the time that it is our turn.
    async fn renewed(&self) -> Result<Known, LoginError> {
        let _turn = self.vault.lock(self.kind).await?;
        let (stored, place) = self.load().await?;
        let Some(refresh) = stored.refresh.as_ref().filter(|_| !self.is_fresh(&stored)) else {
            return self.if_alive(stored, None);
        };
        let marker = self.vault.refreshing(self.kind);
        let cut_short = marker.exists();
        mark(&marker)?;
        match self.refresh(refresh).await {
            Ok(credential) => {
                self.hide(&credential);
                // Kept before it is used: from here on the old refresh token is worthless.
                self.vault.save(self.kind, &credential, place).await?;
                Ok(Known {
                    credential,
                    bridged_until: None,
                })
            }
            Err(LoginError::Refused { .. }) if cut_short => Err(LoginError::UsedUp(self.kind)),
            // A token that is good for some minutes more bridges an outage.
            Err(error) => {
                let next_try = self.clock.now() + BETWEEN_TRIES;
                self.if_alive(stored, Some(next_try)).map_err(|_| error)
            }
        }
    }

    async fn refresh(&self, refresh: &Refresh) -> Result<Credential, LoginError> {
        let unavailable = |source: reqwest::Error| LoginError::Unavailable {
            kind: self.kind,
            source: source.without_url(),
        };
        let body = Asked {
            grant_type: "refresh_token",
            refresh_token: refresh.token.expose(),
            client_id: CLIENT_ID,
            scope: refresh.scopes.join(" "),
        };
        let post = self.server.http.post(self.server.url.clone()).json(&body);
        let response = post.timeout(PATIENCE).send().await.map_err(unavailable)?;
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
        let answered: Answered = response.json().await.map_err(unavailable)?;
        Ok(Credential {
            token: answered.access_token,
            expires: Some(self.clock.now() + SignedDuration::from_secs(answered.expires_in.into())),
            refresh: Some(Refresh {
                token: answered.refresh_token.unwrap_or_else(|| refresh.token.clone()),
                scopes: refresh.scopes.clone(),
            }),
        })
    }

    async fn load(&self) -> Result<(Credential, Place), LoginError> {
        let loaded = self.vault.load(self.kind).await?;
        let (credential, place) = loaded.ok_or(LoginError::Missing(self.kind))?;
        self.hide(&credential);
        Ok((credential, place))
    }

    fn hide(&self, credential: &Credential) {
        let redactors = self.redactors.lock().unwrap_or_else(PoisonError::into_inner);
        for redactor in redactors.iter() {
            redactor.learn(credential.secrets());
        }
    }

    fn if_alive(
        &self,
        credential: Credential,
        bridged_until: Option<Timestamp>,
    ) -> Result<Known, LoginError> {
        if credential.is_expired(self.clock.now()) {
            Err(LoginError::Expired(self.kind))
        } else {
            Ok(Known {
                credential,
                bridged_until,
            })
        }
    }

    /// Whether what is known can be used without looking.
    fn is_good(&self, known: &Known) -> bool {
        let now = self.clock.now();
        let is_bridged = known.bridged_until.is_some_and(|until| now < until);
        self.is_fresh(&known.credential) || (is_bridged && !known.credential.is_expired(now))
    }

    /// Whether it can be used for a while, or for as long as it ever will.
    fn is_fresh(&self, credential: &Credential) -> bool {
        let now = self.clock.now();
        match credential.refresh {
            Some(_) => !credential.is_expired(ahead(now)),
            None => !credential.is_expired(now),
        }
    }
}

fn ahead(now: Timestamp) -> Timestamp {
    now.checked_add(AHEAD).unwrap_or(Timestamp::MAX)
}

/// Says on disk that the refresh token is about to be used: should this process die, the next one knows why it is refused.
fn mark(path: &Path) -> Result<(), CredentialError> {
    let made = fs::File::create(path).and_then(|file| file.sync_all());
    made.map_err(CredentialError::io("create", path))
}

#[derive(Serialize)]
struct Asked<'a> {
    grant_type: &'static str,
    refresh_token: &'a str,
    client_id: &'static str,
    scope: String,
}

#[derive(Deserialize)]
struct Answered {
    access_token: Secret,
    refresh_token: Option<Secret>,
    expires_in: u32,
}
