//! The services that credentials are for.

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue, InvalidHeaderValue};
use thiserror::Error;

use super::route::Route;
use crate::credential::{AuthMethod, CredentialKind, CredentialSource, LoginError};
use crate::network::{HostName, HostNameError};
use crate::secret::{Redactor, Secret};

/// A service: the name that sandboxes use for it, where it really is, and its credential.
pub struct Upstream {
    /// The name that sandboxes use. They never speak TLS to it.
    pub host: HostName,
    pub(super) kind: CredentialKind,
    pub(super) source: CredentialSource,
    base: Url,
}

impl Upstream {
    /// The name for the model gateway of the user's own, wherever that is.
    pub const GATEWAY_HOST: &str = "models.ralph.internal";

    /// The service that a credential is for, at its own address. A gateway's address is the user's own choice and has
    /// to be given; so has that of anything that stands in for a service.
    pub fn new(
        kind: CredentialKind,
        source: CredentialSource,
        base: Option<&str>,
    ) -> Result<Self, UpstreamError> {
        let (host, own) = match kind {
            CredentialKind::AnthropicOAuth | CredentialKind::AnthropicKey => {
                ("api.anthropic.com", Some("https://api.anthropic.com"))
            }
            CredentialKind::OpenAiKey => ("api.openai.com", Some("https://api.openai.com")),
            CredentialKind::GatewayKey => (Self::GATEWAY_HOST, None),
            CredentialKind::CursorKey => return Err(UpstreamError::NotInjected(kind)),
        };
        let base = base.or(own).ok_or(UpstreamError::NoAddress(kind))?;
        Ok(Self {
            host: HostName::parse(host)?,
            kind,
            source,
            base: parse_base(base)?,
        })
    }

    /// How it authenticates.
    #[must_use]
    pub fn auth(&self) -> AuthMethod {
        self.kind.auth()
    }

    /// Where it really is, for people.
    #[must_use]
    pub fn address(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Lets the redactor of a run know its credential, and whatever that is renewed to.
    pub fn register_secrets(&self, redactor: &Redactor) {
        self.source.register_secrets(redactor);
    }

    /// The name of where it really is; `None` where that is a bare address.
    #[must_use]
    pub fn domain(&self) -> Option<&str> {
        self.base.domain()
    }

    /// The credential as it is now, for somebody else who keeps it from sandboxes.
    pub async fn credential(&self) -> Result<Secret, LoginError> {
        self.source.current().await
    }

    /// Whether calls of this kind are made there.
    pub(super) fn takes(&self, route: Route) -> bool {
        match self.kind {
            CredentialKind::AnthropicOAuth | CredentialKind::AnthropicKey => {
                matches!(route, Route::Messages | Route::CountTokens | Route::Models)
            }
            CredentialKind::OpenAiKey => matches!(route, Route::Responses | Route::Chat | Route::Models),
            CredentialKind::GatewayKey => route != Route::Health,
            CredentialKind::CursorKey => false,
        }
    }

    /// The address of a path of the API's.
    pub(super) fn url(&self, path: &str, query: Option<&str>) -> Url {
        below(&self.base, path, query)
    }

    /// The header that authenticates.
    pub(super) fn header(
        &self,
        credential: &Secret,
    ) -> Result<(HeaderName, HeaderValue), InvalidHeaderValue> {
        let (name, text) = match self.kind {
            CredentialKind::AnthropicKey => (
                HeaderName::from_static("x-api-key"),
                credential.expose().to_owned(),
            ),
            _ => (AUTHORIZATION, format!("Bearer {}", credential.expose())),
        };
        let mut value = HeaderValue::from_str(&text)?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// The address of an API. A `/v1` at its end is understood.
fn parse_base(text: &str) -> Result<Url, UpstreamError> {
    let mut url = plain_url(text)?;
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path).to_owned();
    url.set_path(&path);
    Ok(url)
}

/// An address of http or https without a credential in it.
pub(super) fn plain_url(text: &str) -> Result<Url, UpstreamError> {
    let mut url = Url::parse(text).map_err(|_| UpstreamError::NotAUrl)?;
    let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if !plain || !matches!(url.scheme(), "http" | "https") {
        return Err(UpstreamError::NotAUrl);
    }
    url.set_fragment(None);
    Ok(url)
}

/// The address of a path below another one.
pub(super) fn below(base: &Url, path: &str, query: Option<&str>) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    url.set_query(query);
    url
}

/// Why there is no such service.
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// The address is none, is of another scheme, or holds a credential.
    #[error("the address of the service is no plain http or https URL")]
    NotAUrl,
    /// The address is not known.
    #[error("the address that goes with {0} is not known")]
    NoAddress(CredentialKind),
    /// Its calls cannot be read by a gateway.
    #[error("{0} cannot be added by the gateway: its service speaks a language of its own")]
    NotInjected(CredentialKind),
    /// The name is none.
    #[error(transparent)]
    Host(#[from] HostNameError),
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("http://127.0.0.1:4000", "http://127.0.0.1:4000/v1/models")]
    #[case("http://127.0.0.1:4000/v1/", "http://127.0.0.1:4000/v1/models")]
    #[case("https://models.example/team/v1", "https://models.example/team/v1/models")]
    #[case("https://models.example/team", "https://models.example/team/v1/models")]
    fn a_base_address_may_end_in_v1(#[case] base: &str, #[case] expected: &str) {
        let source = CredentialSource::Fixed(Secret::new("k"));
        let upstream = Upstream::new(CredentialKind::GatewayKey, source, Some(base)).unwrap();
        assert_eq!(upstream.url("/v1/models", None).as_str(), expected);
    }

    #[rstest]
    #[case("ftp://a.example")]
    #[case("http://user:pass@a.example")]
    #[case("http://a.example/?key=1")]
    #[case("a.example")]
    fn an_address_with_more_in_it_is_refused(#[case] base: &str) {
        assert!(matches!(parse_base(base), Err(UpstreamError::NotAUrl)));
    }
}
