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

pub(super) fn rate_limit(
    status: StatusCode,
    headers: &HeaderMap,
    text: &str,
    now: Timestamp,
) -> Option<CallFailure> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let pause = |seconds: u64| Duration::from_secs(seconds.clamp(1, MAX_PAUSE));
    if let Some(seconds) = number(RETRY_AFTER.as_str()) {
        return Some(CallFailure::Limited(Some(pause(seconds))));
    }
    if number("x-ratelimit-remaining") == Some(0) {
        let reset = number("x-ratelimit-reset").and_then(|second| i64::try_from(second).ok());
        let left = reset.map(|second| second.saturating_sub(now.as_second()).max(1).unsigned_abs());
        return Some(CallFailure::Limited(left.map(pause)));
    }
    let is_limit = status == StatusCode::TOO_MANY_REQUESTS || text.to_lowercase().contains("rate limit");
    is_limit.then_some(CallFailure::Limited(None))
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
        let found = rate_limit(
            status,
            &headers(pairs),
            text,
            Timestamp::from_second(1000).unwrap(),
        );
        let found = match found {
            Some(CallFailure::Limited(Some(pause))) => format!("{} s", pause.as_secs()),
            Some(CallFailure::Limited(None)) => "some time".to_owned(),
            Some(CallFailure::Failed(error)) => error.to_string(),
            None => "no limit".to_owned(),
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
