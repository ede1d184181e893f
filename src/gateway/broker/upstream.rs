//! The model services that credentials are for.

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue, InvalidHeaderValue};
use thiserror::Error;

use super::refusal::ErrorFormat;
use crate::credential::{CredentialKind, CredentialSource};
use crate::model::{ModelRoute, ModelService};
use crate::network::{HostName, HostNameError};
use crate::secret::Secret;

/// A model service: its host name in sandboxes, its address and its credential.
#[derive(Clone)]
pub struct ModelUpstream {
    /// The host name that sandboxes use, always without TLS.
    pub host: HostName,
    /// The host name of the service for everybody else. It reaches the broker too, so that no sandbox can use the service
    /// past the broker, with a credential of its own.
    pub(super) vendor_host: HostName,
    pub(super) service: &'static ModelService,
    pub(super) kind: CredentialKind,
    /// Its credential.
    pub source: CredentialSource,
    base: Url,
}

impl ModelUpstream {
    /// The service of a credential. `base` replaces the address of the service, and is required for a model gateway.
    pub fn new(
        kind: CredentialKind,
        source: CredentialSource,
        base: Option<&str>,
    ) -> Result<Self, UpstreamError> {
        let service = ModelService::for_credential(kind);
        let Some(vendor_host) = service.hosts.first().filter(|_| service.is_brokered()) else {
            return Err(UpstreamError::NotSupported(kind));
        };
        let base = base.or(service.base_url).ok_or(UpstreamError::NoAddress(kind))?;
        Ok(Self {
            host: HostName::parse(service.sandbox_host)?,
            vendor_host: HostName::parse(vendor_host)?,
            service,
            kind,
            source,
            base: parse_base(base)?,
        })
    }

    /// The address, for messages.
    #[must_use]
    pub fn address(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// The host name in its address; `None` when that is an IP address.
    #[must_use]
    pub fn domain(&self) -> Option<&str> {
        self.base.domain()
    }

    /// What the user does when the credential is refused.
    pub(super) fn remedy(&self) -> String {
        self.kind.store_hint()
    }

    /// The format of errors for a request to this route.
    pub(super) fn error_format(&self, route: Option<&ModelRoute>) -> ErrorFormat {
        let route = route.or(self.service.routes.first());
        route.map_or(ErrorFormat::Text, |route| ErrorFormat::Model(route.error_body))
    }

    /// The address of a path of the API.
    pub(super) fn url(&self, path: &str, query: Option<&str>) -> Url {
        join(&self.base, path, query)
    }

    /// The header with the credential.
    pub(super) fn header(
        &self,
        credential: &Secret,
    ) -> Result<(HeaderName, HeaderValue), InvalidHeaderValue> {
        let (name, text) = match self.kind.header {
            Some(name) => (HeaderName::from_static(name), credential.expose().to_owned()),
            None => (AUTHORIZATION, format!("Bearer {}", credential.expose())),
        };
        let mut value = HeaderValue::from_str(&text)?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// Parses the address of an API, with or without `/v1` at its end.
fn parse_base(text: &str) -> Result<Url, UpstreamError> {
    let mut url = parse_url(text)?;
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path).to_owned();
    url.set_path(&path);
    Ok(url)
}

/// Parses an address of http or https without a credential.
pub(super) fn parse_url(text: &str) -> Result<Url, UpstreamError> {
    let mut url = Url::parse(text).map_err(|_| UpstreamError::InvalidUrl)?;
    let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if !plain || !matches!(url.scheme(), "http" | "https") {
        return Err(UpstreamError::InvalidUrl);
    }
    url.set_fragment(None);
    Ok(url)
}

/// Appends a path to an address.
pub(super) fn join(base: &Url, path: &str, query: Option<&str>) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    url.set_query(query);
    url
}

/// The address or credential of a service cannot be used.
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// The address is invalid, has another scheme, or contains a credential.
    #[error("the address of the service is not an http or https URL without credentials and query")]
    InvalidUrl,
    /// There is no default address.
    #[error("the address for {0} is not configured (model_endpoint.base_url)")]
    NoAddress(CredentialKind),
    /// The gateway does not support the protocol of the service.
    #[error("the gateway cannot add {0}, because it does not support the protocol of its service")]
    NotSupported(CredentialKind),
    /// The host name is invalid.
    #[error(transparent)]
    Host(#[from] HostNameError),
}

impl UpstreamError {
    /// What the user can do next. Rendered as `hint:` by the CLI only.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::InvalidUrl | Self::Host(_) => Some("write it as in `https://models.example/v1`"),
            Self::NoAddress(_) => {
                Some("set `model_endpoint.base_url` to the address, as in `https://models.example/v1`")
            }
            Self::NotSupported(_) => Some("choose another credential with `--auth`"),
        }
    }
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
        let upstream = ModelUpstream::new(crate::model::GATEWAY_KEY, source, Some(base)).unwrap();
        assert_eq!(upstream.url("/v1/models", None).as_str(), expected);
    }

    #[rstest]
    #[case("ftp://a.example")]
    #[case("http://user:pass@a.example")]
    #[case("http://a.example/?key=1")]
    #[case("a.example")]
    fn an_address_with_a_credential_is_an_error(#[case] base: &str) {
        assert!(matches!(parse_base(base), Err(UpstreamError::InvalidUrl)));
    }
}
