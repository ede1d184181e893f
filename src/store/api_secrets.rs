//! Who may use the API: tokens, login sessions and one-time login links. The store has only their hashes.

use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use sqlx::{ColumnIndex, Decode, FromRow, Row, Type};

use super::queue::milliseconds;
use super::{Store, StoreError, in_transaction, on_pool};
use crate::digest::Digest;
use crate::id::RunId;
use crate::secret::Secret;

/// What a caller of the API may do. Each scope includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApiScope {
    /// Look at runs.
    Read,
    /// Also ask something of runs that exist.
    Steer,
    /// Also create and remove runs, and change credentials.
    Admin,
}

impl ApiScope {
    /// All scopes, the smallest first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Steer, Self::Admin];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Steer => "steer",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for ApiScope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|scope| scope.name() == text);
        found.ok_or_else(|| format!("`{text}` is not a scope: expected `read`, `steer` or `admin`"))
    }
}

/// What a secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiSecretKind {
    /// Sent with every request.
    Token,
    /// The cookie of a browser.
    Session,
    /// Exchanged for a session, once.
    Login,
    /// Exchanged for a session that only looks at one run, by anyone who has it.
    Share,
}

impl ApiSecretKind {
    fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Session => "session",
            Self::Login => "login",
            Self::Share => "share",
        }
    }
}

/// What is stored about a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSecret {
    /// The name of a token, which sessions and links inherit: who asks.
    pub name: String,
    /// What it allows.
    pub scope: ApiScope,
    /// When it was created.
    pub created: Timestamp,
    /// When it ends.
    pub expires: Timestamp,
    /// The only run that it is for.
    pub run: Option<RunId>,
}

/// What a new secret allows.
struct Grant<'a> {
    name: &'a str,
    scope: ApiScope,
    lifetime: Duration,
    run: Option<&'a RunId>,
}

const ADD: &str = "
    INSERT INTO api_secrets (hash, kind, name, scope, created_at, expires_at, run)
    VALUES ($1, $2, $3, $4, {now}, {now} + $5, $6) ON CONFLICT DO NOTHING";

/// Expired tokens stay in the list until they are revoked.
const REMOVE_EXPIRED: &str = "DELETE FROM api_secrets WHERE kind <> 'token' AND expires_at <= {now}";

const FIND: &str = "SELECT * FROM api_secrets WHERE hash = $1 AND kind = $2 AND expires_at > {now}";

const SPEND: &str =
    "DELETE FROM api_secrets WHERE hash = $1 AND kind = 'login' AND expires_at > {now} RETURNING *";

const LIST_TOKENS: &str = "SELECT * FROM api_secrets WHERE kind = 'token' ORDER BY created_at, name";

/// Also ends the sessions that were opened for it.
const REVOKE: &str = "DELETE FROM api_secrets WHERE name = $1";

const REVOKE_OF_RUN: &str = "DELETE FROM api_secrets WHERE run = $1";

const END_SESSION: &str = "DELETE FROM api_secrets WHERE kind = 'session' AND hash = $1";

const END_SESSIONS: &str = "DELETE FROM api_secrets WHERE kind = 'session' AND name = $1";

impl Store {
    /// Stores the hash of a secret. Returns whether that was possible: two tokens cannot have the same name.
    pub async fn add_api_secret(
        &self,
        secret: &Secret,
        kind: ApiSecretKind,
        name: &str,
        scope: ApiScope,
        lifetime: Duration,
    ) -> Result<bool, StoreError> {
        let grant = Grant {
            name,
            scope,
            lifetime,
            run: None,
        };
        self.add_secret(secret, kind, &grant).await
    }

    /// Stores the hash of a secret that only allows to look at one run. Its name is `share-RUN`.
    pub async fn add_run_secret(
        &self,
        secret: &Secret,
        kind: ApiSecretKind,
        run: &RunId,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let grant = Grant {
            name: &format!("share-{run}"),
            scope: ApiScope::Read,
            lifetime,
            run: Some(run),
        };
        self.add_secret(secret, kind, &grant).await.map(drop)
    }

    async fn add_secret(
        &self,
        secret: &Secret,
        kind: ApiSecretKind,
        grant: &Grant<'_>,
    ) -> Result<bool, StoreError> {
        let [expired, add] = [REMOVE_EXPIRED, ADD].map(|statement| self.sql(statement));
        let added = in_transaction!(self, tx => {
            sqlx::query(&expired).execute(&mut *tx).await?;
            let added = sqlx::query(&add)
                .bind(hash(secret))
                .bind(kind.name())
                .bind(grant.name)
                .bind(grant.scope.name())
                .bind(milliseconds(grant.lifetime))
                .bind(grant.run.map(RunId::as_str))
                .execute(&mut *tx)
                .await?;
            added.rows_affected() > 0
        });
        added.map_err(StoreError::statement("store an API secret"))
    }

    /// What is stored about this secret, unless it expired.
    pub async fn api_secret(
        &self,
        secret: &Secret,
        kind: ApiSecretKind,
    ) -> Result<Option<ApiSecret>, StoreError> {
        let sql = self.sql(FIND);
        let row: Option<StoredSecret> = on_pool!(self, pool => sqlx::query_as(&sql)
            .bind(hash(secret))
            .bind(kind.name())
            .fetch_optional(pool)
            .await)
        .map_err(StoreError::statement("look up an API secret"))?;
        row.map(ApiSecret::try_from).transpose()
    }

    /// Takes a login link out of the store. Of several calls at once one gets it.
    pub async fn spend_login(&self, secret: &Secret) -> Result<Option<ApiSecret>, StoreError> {
        let sql = self.sql(SPEND);
        let row: Option<StoredSecret> = on_pool!(self, pool => sqlx::query_as(&sql)
            .bind(hash(secret))
            .fetch_optional(pool)
            .await)
        .map_err(StoreError::statement("spend a login link"))?;
        row.map(ApiSecret::try_from).transpose()
    }

    /// All tokens, also expired ones, oldest first.
    pub async fn api_tokens(&self) -> Result<Vec<ApiSecret>, StoreError> {
        let rows: Vec<StoredSecret> =
            on_pool!(self, pool => sqlx::query_as(LIST_TOKENS).fetch_all(pool).await)
                .map_err(StoreError::statement("list the API tokens"))?;
        rows.into_iter().map(ApiSecret::try_from).collect()
    }

    /// Removes a token and the sessions of its name. Returns whether there was any.
    pub async fn revoke_api_token(&self, name: &str) -> Result<bool, StoreError> {
        let removed = in_transaction!(self, tx => {
            sqlx::query(REVOKE).bind(name).execute(&mut *tx).await?.rows_affected()
        });
        let removed = removed.map_err(StoreError::statement("revoke an API token"))?;
        Ok(removed > 0)
    }

    /// Removes all secrets that are for one run.
    pub async fn revoke_run_secrets(&self, run: &RunId) -> Result<(), StoreError> {
        let removed = in_transaction!(self, tx => {
            sqlx::query(REVOKE_OF_RUN).bind(run.as_str()).execute(&mut *tx).await?;
        });
        removed.map_err(StoreError::statement("revoke the links of a run"))
    }

    /// Ends one login session.
    pub async fn end_session(&self, secret: &Secret) -> Result<(), StoreError> {
        let ended = in_transaction!(self, tx => {
            sqlx::query(END_SESSION).bind(hash(secret)).execute(&mut *tx).await?;
        });
        ended.map_err(StoreError::statement("end a login session"))
    }

    /// Ends all login sessions of this name.
    pub async fn end_sessions(&self, name: &str) -> Result<(), StoreError> {
        let ended = in_transaction!(self, tx => {
            sqlx::query(END_SESSIONS).bind(name).execute(&mut *tx).await?;
        });
        ended.map_err(StoreError::statement("end the login sessions"))
    }
}

/// The secrets are random and long, so one round of a plain hash is enough.
fn hash(secret: &Secret) -> String {
    Digest::sha256(secret.expose().as_bytes()).to_string()
}

struct StoredSecret {
    name: String,
    scope: String,
    created: i64,
    expires: i64,
    run: Option<String>,
}

impl<'r, R: Row> FromRow<'r, R> for StoredSecret
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> sqlx::Result<Self> {
        Ok(Self {
            name: row.try_get("name")?,
            scope: row.try_get("scope")?,
            created: row.try_get("created_at")?,
            expires: row.try_get("expires_at")?,
            run: row.try_get("run")?,
        })
    }
}

impl TryFrom<StoredSecret> for ApiSecret {
    type Error = StoreError;

    fn try_from(row: StoredSecret) -> Result<Self, StoreError> {
        let time = |ms| Timestamp::from_millisecond(ms).map_err(StoreError::row);
        Ok(Self {
            scope: row.scope.parse().map_err(StoreError::row)?,
            created: time(row.created)?,
            expires: time(row.expires)?,
            run: row
                .run
                .map(|run| RunId::parse(&run).map_err(StoreError::row))
                .transpose()?,
            name: row.name,
        })
    }
}
