//! The address of an endpoint.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;
use reqwest::header::InvalidHeaderValue;
use thiserror::Error;

/// The http or https address of an endpoint. It contains no credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelEndpoint {
    /// The URL for calls.
    pub(super) calls: Url,
    /// The end of its path.
    call_path: &'static str,
}

/// Why an endpoint cannot be used.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// The address is not a URL.
    #[error("the address of the model endpoint is not a URL")]
    NotAUrl(#[source] <Url as FromStr>::Err),
    /// The address has another scheme.
    #[error("the address of the model endpoint has the scheme `{scheme}`; expected `http` or `https`")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// The address contains a credential, which would show up in logs.
    #[error("the address of the model endpoint contains a user name or password")]
    Credential,
    /// The key contains a character that is not allowed in a header, often a line break.
    #[error("the key of the model endpoint contains an invalid character")]
    Key(#[source] InvalidHeaderValue),
    /// The HTTP client could not be set up.
    #[error("cannot set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

impl ModelEndpoint {
    /// Parses a base URL: `http://127.0.0.1:4000`, which gets the path `/v1`, or one with the path in front of
    /// `/chat/completions`, such as `https://api.openai.com/v1` or `https://api.z.ai/api/paas/v4`.
    pub fn parse(base: &str) -> Result<Self, EndpointError> {
        Self::with_calls_at(base, COMPLETIONS)
    }

    /// The endpoint of Anthropic's Messages API, with or without `/v1` at the end of its address.
    pub(super) fn parse_messages(base: &str) -> Result<Self, EndpointError> {
        let base = base.trim().trim_end_matches('/');
        Self::with_calls_at(
            &format!("{}/v1", base.strip_suffix("/v1").unwrap_or(base)),
            MESSAGES,
        )
    }

    /// The URL of another path of the API.
    pub(super) fn sibling(&self, path: &str) -> Url {
        let mut url = self.calls.clone();
        let api = url.path().strip_suffix(self.call_path).unwrap_or_default();
        url.set_path(&format!("{api}{path}"));
        url
    }

    fn with_calls_at(base: &str, call_path: &'static str) -> Result<Self, EndpointError> {
        let mut url = Url::parse(base.trim()).map_err(EndpointError::NotAUrl)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::Credential);
        }
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EndpointError::Scheme {
                scheme: url.scheme().to_owned(),
            });
        }
        let prefix = match url.path().trim_end_matches('/') {
            "" => "/v1",
            path => path.strip_suffix(call_path).unwrap_or(path),
        };
        let path = format!("{prefix}{call_path}");
        url.set_path(&path);
        url.set_fragment(None);
        Ok(Self {
            calls: url,
            call_path,
        })
    }
}

const COMPLETIONS: &str = "/chat/completions";
const MESSAGES: &str = "/messages";

/// The base URL, without a query.
impl fmt::Display for ModelEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = self.calls.origin().ascii_serialization();
        let path = self.calls.path();
        write!(f, "{origin}{}", path.strip_suffix(self.call_path).unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("http://127.0.0.1:4000", "http://127.0.0.1:4000/v1/chat/completions")]
    #[case("http://127.0.0.1:4000/", "http://127.0.0.1:4000/v1/chat/completions")]
    #[case("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions")]
    #[case(
        "https://api.z.ai/api/paas/v4/",
        "https://api.z.ai/api/paas/v4/chat/completions"
    )]
    #[case("https://h/v1/chat/completions", "https://h/v1/chat/completions")]
    #[case(
        "https://h/openai?api-version=1#x",
        "https://h/openai/chat/completions?api-version=1"
    )]
    fn completions_follow_the_base(#[case] base: &str, #[case] completions: &str) {
        assert_eq!(ModelEndpoint::parse(base).unwrap().calls.as_str(), completions);
    }

    #[rstest]
    #[case("https://api.anthropic.com")]
    #[case("https://api.anthropic.com/")]
    #[case("https://api.anthropic.com/v1")]
    fn messages_follow_the_base(#[case] base: &str) {
        let endpoint = ModelEndpoint::parse_messages(base).unwrap();
        assert_eq!(endpoint.calls.as_str(), "https://api.anthropic.com/v1/messages");
        assert_eq!(
            endpoint.sibling("/models").as_str(),
            "https://api.anthropic.com/v1/models"
        );
        assert_eq!(endpoint.to_string(), "https://api.anthropic.com/v1");
    }

    #[test]
    fn an_endpoint_shows_its_base_without_the_query() {
        let endpoint = ModelEndpoint::parse("https://h:8443/openai?key=abc").unwrap();
        assert_eq!(endpoint.to_string(), "https://h:8443/openai");
    }

    #[rstest]
    #[case("127.0.0.1:4000")]
    #[case("ftp://h/v1")]
    #[case("https://user:hunter2@h/v1")]
    #[case("ftp://hunter2@h/v1")]
    #[case("hunter2")]
    fn an_invalid_address_is_refused_and_not_repeated(#[case] base: &str) {
        let error = ModelEndpoint::parse(base).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}
