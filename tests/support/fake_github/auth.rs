//! Who asks, and what they may do: personal access tokens, Apps and their installations.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};

use super::reply::Reply;
use super::world::{Repo, Role};

/// Permissions by name; `true` is write access.
pub type Permissions = BTreeMap<String, bool>;

/// Reads permissions such as `contents:write`.
pub fn permissions(words: &[&str]) -> Permissions {
    let parse = |word: &&str| {
        let (name, level) = word
            .split_once(':')
            .unwrap_or_else(|| panic!("no level in {word}"));
        assert!(["read", "write"].contains(&level), "unknown level in {word}");
        (name.to_owned(), level == "write")
    };
    words.iter().map(parse).collect()
}

/// The permissions as answers have them.
pub fn permissions_json(permissions: &Permissions) -> Value {
    let level = |write: bool| if write { "write" } else { "read" };
    let pairs = permissions
        .iter()
        .map(|(name, write)| (name.clone(), json!(level(*write))));
    Value::Object(pairs.collect())
}

/// Who a token speaks for.
#[derive(Clone, Debug)]
pub struct Identity {
    pub login: String,
    pub permissions: Permissions,
    /// Of an installation: its number, when the token expires, and the repositories it is for.
    pub installation: Option<InstallationToken>,
}

#[derive(Clone, Debug)]
pub struct InstallationToken {
    pub installation: u64,
    pub expires: Timestamp,
    pub repos: Vec<String>,
}

/// An App that is installed once.
pub struct App {
    pub id: u64,
    pub slug: String,
    /// The public key, as PKCS#1 DER.
    pub public_key: Vec<u8>,
    pub installation: u64,
    pub permissions: Permissions,
    pub repos: Vec<String>,
}

/// All credentials.
#[derive(Default)]
pub struct Accounts {
    pub tokens: BTreeMap<String, Identity>,
    pub apps: Vec<App>,
}

/// Who sent a request.
#[derive(Clone, Debug)]
pub enum Caller {
    Anonymous,
    /// An App with its JWT, by its number.
    App(u64),
    Token(Identity),
}

impl Caller {
    /// The login that writes; empty for an anonymous caller.
    pub fn login(&self) -> &str {
        match self {
            Self::Anonymous => "",
            Self::App(_) => "app",
            Self::Token(identity) => &identity.login,
        }
    }

    /// What the caller may do in a repository at most.
    pub fn role(&self, repo: &Repo) -> Role {
        let public = if repo.private { Role::None } else { Role::Read };
        match self {
            Self::Anonymous | Self::App(_) => public,
            Self::Token(identity) => match &identity.installation {
                Some(token) if token.repos.contains(&repo.name) => Role::Write,
                Some(_) => public,
                None => repo.role(&identity.login),
            },
        }
    }

    /// Whether the token has a permission.
    pub fn has(&self, permission: &str, write: bool) -> bool {
        match self {
            Self::Token(identity) => identity
                .permissions
                .get(permission)
                .is_some_and(|granted| *granted || !write),
            Self::Anonymous | Self::App(_) => false,
        }
    }

    /// How GitHub names the kind of credential in a refusal.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Token(identity) if identity.installation.is_some() => "integration",
            _ => "personal access token",
        }
    }
}

impl Accounts {
    /// The caller behind an `Authorization` header; the error is the refusal.
    pub fn caller(&self, authorization: &str, now: Timestamp) -> Result<Caller, Reply> {
        if authorization.is_empty() {
            return Ok(Caller::Anonymous);
        }
        let (scheme, value) = authorization.split_once(' ').unwrap_or_default();
        let token = match scheme.to_ascii_lowercase().as_str() {
            "bearer" | "token" => value.trim().to_owned(),
            "basic" => basic_password(value).ok_or_else(bad_credentials)?,
            _ => return Err(bad_credentials()),
        };
        if token.matches('.').count() == 2 && token.starts_with("ey") {
            return self.app_of_jwt(&token, now).map(Caller::App);
        }
        let identity = self.tokens.get(&token).ok_or_else(bad_credentials)?;
        match &identity.installation {
            Some(installation) if installation.expires <= now => Err(bad_credentials()),
            _ => Ok(Caller::Token(identity.clone())),
        }
    }

    fn app_of_jwt(&self, token: &str, now: Timestamp) -> Result<u64, Reply> {
        let undecodable = || Reply::refuse(401, "A JSON web token could not be decoded");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(undecodable)?;
        let (header, claims) = signed.split_once('.').ok_or_else(undecodable)?;
        let (header, claims) = (part(header), part(claims));
        if header["alg"] != "RS256" {
            return Err(undecodable());
        }
        let issuer = match &claims["iss"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let app = self.apps.iter().find(|app| app.id.to_string() == issuer);
        let app = app.ok_or_else(|| Reply::refuse(404, "Integration not found"))?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &app.public_key)
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| undecodable())?;
        check_times(&claims, now.as_second())?;
        Ok(app.id)
    }

    /// Lets the tokens of one installation, or of all, expire now.
    pub fn expire_tokens(&mut self, of: Option<u64>, now: Timestamp) {
        let tokens = self.tokens.values_mut();
        let tokens = tokens.filter_map(|identity| identity.installation.as_mut());
        for token in tokens.filter(|token| of.is_none_or(|number| number == token.installation)) {
            token.expires = now;
        }
    }
}

/// How long a token of an installation is valid.
pub const TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(1);

/// `exp` may be this many seconds ahead.
const LONGEST_JWT: i64 = 600;

fn check_times(claims: &Value, now: i64) -> Result<(), Reply> {
    let refuse = |message: &str| Err(Reply::refuse(401, message));
    let (Some(issued), Some(expires)) = (claims["iat"].as_i64(), claims["exp"].as_i64()) else {
        return refuse("Missing 'issued at' claim ('iat') or 'expiration time' claim ('exp') in assertion");
    };
    match () {
        () if issued > now => refuse(
            "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
        ),
        () if expires <= now => refuse(
            "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
        ),
        () if expires > now + LONGEST_JWT => {
            refuse("'Expiration time' claim ('exp') is too far in the future")
        }
        () => Ok(()),
    }
}

/// A part of a JWT.
fn part(text: &str) -> Value {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn basic_password(value: &str) -> Option<String> {
    let pair = BASE64_STANDARD.decode(value.trim()).ok()?;
    let pair = String::from_utf8(pair).ok()?;
    pair.split_once(':').map(|(_, password)| password.to_owned())
}

fn bad_credentials() -> Reply {
    Reply::refuse(401, "Bad credentials")
}
