//! The requests that the broker forwards, and how those that cost money are metered.

use std::fmt;
use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::Value;

use super::fields::{self, CallRules, CallTraits, FieldList};
use super::{CallError, MeteredCall, UsageState};

/// A request that the broker forwards with a credential.
#[derive(Debug)]
pub(crate) struct ModelRoute {
    pub(crate) method: &'static str,
    /// The path. A `*` stands for a name of letters, digits, `.`, `_` and `-`.
    pub(crate) path: &'static str,
    /// How the call is metered; `None` if it is free.
    pub(crate) api: Option<&'static ModelApi>,
    /// Formats an error of the broker as one of the service.
    pub(crate) error_body: fn(&ApiError) -> Value,
}

impl ModelRoute {
    /// A call that costs money.
    pub(super) const fn metered(
        path: &'static str,
        api: &'static ModelApi,
        error_body: fn(&ApiError) -> Value,
    ) -> Self {
        Self {
            method: "POST",
            path,
            api: Some(api),
            error_body,
        }
    }

    /// A free request.
    pub(super) const fn free(
        method: &'static str,
        path: &'static str,
        error_body: fn(&ApiError) -> Value,
    ) -> Self {
        Self {
            method,
            path,
            api: None,
            error_body,
        }
    }

    /// Whether a request uses this route. Nothing is decoded, so that no other path can be smuggled in.
    pub(crate) fn matches(&self, method: &str, path: &str) -> bool {
        let name = match self.path.split_once('*') {
            None => return method == self.method && path == self.path,
            Some((start, end)) => path.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)),
        };
        let is_name = |name: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            !name.is_empty() && name.chars().all(allowed)
        };
        method == self.method && name.is_some_and(is_name)
    }
}

/// One API of a model service: how its calls are bounded and how its responses report usage.
pub(crate) struct ModelApi {
    /// The name of the API.
    pub(crate) name: &'static str,
    /// The fields that a call may have.
    pub(super) fields: &'static LazyLock<FieldList>,
    /// Parses a call from its path and body, whose fields are checked. An ambiguous body is an error.
    pub(super) parse_call: fn(path: &str, traits: CallTraits, body: Bytes) -> Result<MeteredCall, CallError>,
    /// Texts of which every event that has to be read contains one. The others are not parsed.
    pub(crate) event_markers: &'static [&'static str],
    /// Reads an event of a stream, or a complete JSON body.
    pub(crate) read_event: fn(event: &str, state: &mut UsageState),
}

impl ModelApi {
    /// Checks the fields of a call and parses it.
    pub(crate) fn parse(
        &self,
        path: &str,
        rules: CallRules<'_>,
        body: Bytes,
    ) -> Result<MeteredCall, CallError> {
        let traits = fields::check(self.fields, rules, &body)?;
        (self.parse_call)(path, traits, body)
    }
}

impl fmt::Debug for ModelApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// An error of the broker.
pub(crate) struct ApiError {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The type that Anthropic and OpenAI use for this status.
    pub(crate) kind: &'static str,
    /// The broker's own code.
    pub(crate) code: &'static str,
    /// What happened, and what to do.
    pub(crate) message: String,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("/v1/models", "/v1/models", true)]
    #[case("/v1/models", "/v1/models/", false)]
    #[case("/m/*:run", "/m/a-1.5:run", true)]
    #[case("/m/*:run", "/m/:run", false)]
    #[case("/m/*:run", "/m/a/b:run", false)]
    #[case("/m/*:run", "/m/a%2fb:run", false)]
    #[case("/m/*:run", "/m/a:walk", false)]
    fn paths_match_exactly(#[case] route: &'static str, #[case] path: &str, #[case] expected: bool) {
        let route = ModelRoute::free("POST", route, |_| json!({}));
        assert_eq!(route.matches("POST", path), expected);
        assert!(!route.matches("GET", path));
    }
}
