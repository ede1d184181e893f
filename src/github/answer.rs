//! What an answer of GitHub means: an object, a page of a list, a rate limit or another refusal.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use reqwest::header::{HeaderMap, LINK, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::GitHubError;

/// The longest pause that a header can ask for, in seconds.
const MAX_PAUSE: u64 = 24 * 3600;
/// How many characters of GitHub's message an error contains.
pub(super) const MAX_MESSAGE: usize = 500;

pub(super) enum CallFailure {
    /// A rate limit, with the pause that GitHub asks for. The call had no effect.
    Limited(Option<Duration>),
    Failed(GitHubError),
}

impl CallFailure {
    /// Whether GitHub does not accept the token.
    pub(super) fn is_refused_token(&self) -> bool {
        matches!(self, Self::Failed(error) if error.status() == Some(401))
    }
}

/// Whether a refusal is a rate limit. GitHub uses 403 for missing permissions too.
pub(super) fn is_rate_limit(status: StatusCode, headers: &HeaderMap, text: &str) -> bool {
    let is_limit = headers.contains_key(RETRY_AFTER)
        || number(headers, "x-ratelimit-remaining") == Some(0)
        || text.to_lowercase().contains("rate limit");
    status == StatusCode::TOO_MANY_REQUESTS || (status == StatusCode::FORBIDDEN && is_limit)
}

/// The pause that the headers of a rate limit ask for. Secondary limits often name none.
pub(super) fn asked_pause(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let of_primary = || {
        number(headers, "x-ratelimit-remaining").filter(|remaining| *remaining == 0)?;
        let reset = i64::try_from(number(headers, "x-ratelimit-reset")?).ok()?;
        Some(reset.saturating_sub(now.as_second()).max(1).unsigned_abs())
    };
    let seconds = number(headers, RETRY_AFTER.as_str()).or_else(of_primary)?;
    Some(Duration::from_secs(seconds.clamp(1, MAX_PAUSE)))
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

pub(super) async fn read<T: DeserializeOwned>(call: &str, response: Response) -> Result<T, GitHubError> {
    parse(call, &read_body(call, response).await?)
}

pub(super) async fn read_body(call: &str, response: Response) -> Result<Bytes, GitHubError> {
    response.bytes().await.map_err(|source| GitHubError::Unreachable {
        call: call.to_owned(),
        source: source.without_url(),
    })
}

pub(super) fn parse<T: DeserializeOwned>(call: &str, body: &[u8]) -> Result<T, GitHubError> {
    serde_json::from_slice(body).map_err(|error| GitHubError::Response {
        call: call.to_owned(),
        source: error.into(),
    })
}

/// Whether the `Link` header names a next page. Its address is not used: one of another server would get the token.
pub(super) fn has_next_page(headers: &HeaderMap) -> bool {
    let links = headers.get(LINK).and_then(|links| links.to_str().ok());
    links.is_some_and(|links| links.contains("rel=\"next\""))
}

/// GitHub's message, and those of its parts: which field is wrong and why.
pub(super) fn error_message(text: &str) -> String {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let Some(message) = body["message"].as_str() else {
        return text.trim().chars().take(MAX_MESSAGE).collect();
    };
    let parts = body["errors"].as_array().into_iter().flatten();
    let parts = parts.filter_map(|part| {
        let (field, code) = (part["field"].as_str(), part["code"].as_str());
        match (part["message"].as_str().or(part.as_str()), field, code) {
            (Some(message), _, _) => Some(message.to_owned()),
            (None, Some(field), Some(code)) => Some(format!("{field} {code}")),
            (None, _, _) => None,
        }
    });
    let all: Vec<String> = std::iter::once(message.to_owned()).chain(parts).collect();
    all.join("; ").chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name = reqwest::header::HeaderName::from_static(name);
            (name, value.parse().unwrap())
        });
        pairs.collect()
    }

    #[rstest]
    #[case::retry_after(403, &[("retry-after", "7")], "", "7 s")]
    #[case::at_once(403, &[("retry-after", "0")], "", "1 s")]
    #[case::never(403, &[("retry-after", "18446744073709551615")], "", "86400 s")]
    #[case::primary(403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1030")], "", "30 s")]
    #[case::primary_over(429, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "9")], "", "1 s")]
    #[case::secondary(403, &[("x-ratelimit-remaining", "4000")], "You have exceeded a secondary rate limit", "some time")]
    #[case::bare(429, &[], "", "some time")]
    #[case::permission(403, &[("x-ratelimit-remaining", "4000")], "Resource not accessible", "no limit")]
    fn limits_differ_from_missing_permissions(
        #[case] status: u16,
        #[case] pairs: &[(&'static str, &str)],
        #[case] text: &str,
        #[case] expected: &str,
    ) {
        let status = StatusCode::from_u16(status).unwrap();
        let (headers, now) = (headers(pairs), Timestamp::from_second(1000).unwrap());
        let found = match (is_rate_limit(status, &headers, text), asked_pause(&headers, now)) {
            (true, Some(pause)) => format!("{} s", pause.as_secs()),
            (true, None) => "some time".to_owned(),
            (false, _) => "no limit".to_owned(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn messages_name_the_field() {
        let text = r#"{"message":"Validation Failed","errors":[{"resource":"PullRequest","field":"head","code":"invalid"},{"message":"A pull request already exists"}]}"#;
        assert_eq!(
            error_message(text),
            "Validation Failed; head invalid; A pull request already exists"
        );
        assert_eq!(error_message("<html>"), "<html>");
    }
}
