//! Parses a call to a model: its model, and the most tokens that it can use.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

use crate::usage::Tokens;

/// A lower bound of bytes per input token. Prose, code and logs have three to four in every common tokenizer.
const BYTES_PER_TOKEN: u64 = 2;
/// The largest context window of any model. It bounds the estimate for images, which have many bytes per token.
pub(super) const MAX_WINDOW: u64 = 1_000_000;
/// The longest model name, in bytes. Names stay in memory until the run ends.
const MAX_MODEL_NAME: usize = 256;
/// The limit of output tokens that is added to a call without one.
const DEFAULT_OUTPUT: u64 = 32_000;

/// A parsed call.
#[derive(Debug)]
pub(crate) struct MeteredCall {
    /// The name of the model.
    pub(crate) model: String,
    /// The most tokens that the call can use.
    pub(crate) worst: Tokens,
    /// The body to forward, with a limit on output tokens and a request to report usage.
    pub(crate) body: Bytes,
}

impl MeteredCall {
    /// A call that is forwarded as it is.
    pub(super) fn new(model: &str, output: u64, body: Bytes) -> Result<Self, CallError> {
        if model.len() > MAX_MODEL_NAME {
            return Err(CallError::LongName);
        }
        let worst = Tokens {
            input: (body.len() as u64).div_ceil(BYTES_PER_TOKEN).min(MAX_WINDOW),
            output,
        };
        Ok(Self {
            model: model.to_owned(),
            worst,
            body,
        })
    }

    /// Parses a call of Anthropic's or OpenAI's APIs. A limit on output tokens is added to a call without one.
    pub(super) fn parse(format: &CallFormat, body: &Bytes) -> Result<Self, CallError> {
        let fields: CallFields<'_> = serde_json::from_slice(body)?;
        if fields.names_other_services() {
            return Err(CallError::OwnEndpoint);
        }
        let limit = (format.output_limit)(&fields);
        let answers = fields.n.unwrap_or(1).max(1);
        let output = limit.unwrap_or(DEFAULT_OUTPUT).saturating_mul(answers);
        let mut additions = String::new();
        if limit.is_none() {
            additions = format!(",\"{}\":{DEFAULT_OUTPUT}", format.output_field);
        }
        if format.has_stream_options && fields.stream == Some(true) && fields.stream_options.is_none() {
            additions.push_str(",\"stream_options\":{\"include_usage\":true}");
        }
        let mut call = Self::new(&fields.model, output, body.clone())?;
        if fields.uses_stored_content() {
            call.worst.input = MAX_WINDOW;
        }
        call.body = append(body.clone(), &additions);
        Ok(call)
    }
}

/// Where a call of Anthropic's or OpenAI's APIs limits its output, and whether it has to ask for usage.
pub(super) struct CallFormat {
    /// The limit on output tokens. The service may ignore the fields of other APIs.
    pub(super) output_limit: fn(&CallFields<'_>) -> Option<u64>,
    /// The field that a limit is added in.
    pub(super) output_field: &'static str,
    /// Whether streams report usage only on request.
    pub(super) has_stream_options: bool,
}

/// Why a call is not forwarded.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// It is not a JSON object with a model, or has a duplicate field.
    #[error("cannot parse the body of the request")]
    Unreadable(#[from] serde_json::Error),
    /// It contains a key or an address.
    #[error("the body of the request must not contain a key, an address, a fallback or an MCP server")]
    OwnEndpoint,
    /// The name of the model is too long.
    #[error("the name of the model is longer than {MAX_MODEL_NAME} bytes")]
    LongName,
}

/// The fields of a call that matter here. A duplicate field is an error.
#[derive(Deserialize)]
pub(super) struct CallFields<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    pub(super) max_tokens: Option<u64>,
    pub(super) max_completion_tokens: Option<u64>,
    pub(super) max_output_tokens: Option<u64>,
    n: Option<u64>,
    stream: Option<bool>,
    stream_options: Option<IgnoredAny>,
    #[serde(borrow)]
    tools: Option<Vec<CallTool<'a>>>,
    api_key: Option<IgnoredAny>,
    api_base: Option<IgnoredAny>,
    base_url: Option<IgnoredAny>,
    user_config: Option<IgnoredAny>,
    extra_headers: Option<IgnoredAny>,
    extra_body: Option<IgnoredAny>,
    model_list: Option<IgnoredAny>,
    fallbacks: Option<IgnoredAny>,
    context_window_fallbacks: Option<IgnoredAny>,
    content_policy_fallbacks: Option<IgnoredAny>,
    mcp_servers: Option<IgnoredAny>,
    previous_response_id: Option<IgnoredAny>,
    conversation: Option<IgnoredAny>,
    prompt: Option<IgnoredAny>,
    container: Option<IgnoredAny>,
}

/// A tool for the model.
#[derive(Deserialize)]
struct CallTool<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    server_url: Option<IgnoredAny>,
    connector_id: Option<IgnoredAny>,
}

impl CallTool<'_> {
    /// Whether the service would connect to an address that the sandbox chooses.
    fn is_remote(&self) -> bool {
        self.kind.as_deref() == Some("mcp") || self.server_url.is_some() || self.connector_id.is_some()
    }
}

impl CallFields<'_> {
    /// Whether it contains a key, an address or another model. The service is outside of the sandbox, and must not be made
    /// to connect to other hosts.
    fn names_other_services(&self) -> bool {
        let fields = [
            &self.api_key,
            &self.api_base,
            &self.base_url,
            &self.user_config,
            &self.extra_headers,
            &self.extra_body,
            &self.model_list,
            &self.fallbacks,
            &self.context_window_fallbacks,
            &self.content_policy_fallbacks,
            &self.mcp_servers,
        ];
        let tools = self.tools.iter().flatten();
        fields.into_iter().any(Option::is_some) || tools.into_iter().any(CallTool::is_remote)
    }

    /// Whether the service adds content that it stores, so that the size of the body is no bound.
    fn uses_stored_content(&self) -> bool {
        let fields = [
            &self.previous_response_id,
            &self.conversation,
            &self.prompt,
            &self.container,
        ];
        fields.into_iter().any(Option::is_some)
    }
}

/// Adds fields at the end of a JSON object. The rest stays byte for byte.
fn append(body: Bytes, additions: &str) -> Bytes {
    match body.iter().rposition(|byte| *byte == b'}') {
        Some(end) if !additions.is_empty() => [&body[..end], additions.as_bytes(), b"}"].concat().into(),
        _ => body,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::model::service::ModelApi;
    use crate::model::service::anthropic::MESSAGES;
    use crate::model::service::openai::{CHAT, RESPONSES};

    #[rstest]
    #[case::messages(&MESSAGES, r#"{"model":"m","max_tokens":64}"#, 64, "")]
    #[case::chat(
        &CHAT,
        r#"{"model":"m","max_tokens":5,"max_completion_tokens":7}"#,
        7,
        ""
    )]
    #[case::several_answers(&CHAT, r#"{"model":"m","max_tokens":5,"n":3}"#, 15, "")]
    #[case::no_limit(
        &RESPONSES,
        r#"{"model":"m"}"#,
        32_000,
        r#","max_output_tokens":32000"#
    )]
    #[case::a_limit_of_another_protocol(
        &RESPONSES,
        r#"{"model":"m","max_tokens":1}"#,
        32_000,
        r#","max_output_tokens":32000"#
    )]
    #[case::no_usage(
        &CHAT,
        r#"{"model":"m","max_tokens":5,"stream":true}"#,
        5,
        r#","stream_options":{"include_usage":true}"#
    )]
    #[case::own_stream_options(
        &CHAT,
        r#"{"model":"m","max_tokens":5,"stream":true,"stream_options":{}}"#,
        5,
        ""
    )]
    fn a_call_is_parsed(
        #[case] api: &ModelApi,
        #[case] body: &str,
        #[case] output: u64,
        #[case] added: &str,
    ) {
        let call = (api.parse_call)("", Bytes::from(body.to_owned())).unwrap();
        let input = (body.len() as u64).div_ceil(2);
        assert_eq!((call.model.as_str(), call.worst), ("m", Tokens { input, output }));
        let expected = format!("{}{added}}}", &body[..body.len() - 1]);
        assert_eq!(call.body, expected.as_bytes());
        serde_json::from_slice::<serde_json::Value>(&call.body).unwrap();
    }

    #[rstest]
    #[case::twice(r#"{"model":"m","max_tokens":1,"max_tokens":9}"#)]
    #[case::twice_spelled_otherwise(r#"{"model":"m","max_tokens":1,"max_\u0074okens":9}"#)]
    #[case::no_model("{}")]
    #[case::two_values(r#"{"model":"m"}{"model":"m"}"#)]
    #[case::own_key(r#"{"model":"m","api_key":"sk-x"}"#)]
    #[case::own_address(r#"{"model":"m","api_base":"http://x"}"#)]
    #[case::own_fallback(r#"{"model":"m","fallbacks":[{"model":"x","api_base":"http://x"}]}"#)]
    #[case::own_servers(r#"{"model":"m","mcp_servers":[{"url":"https://x"}]}"#)]
    #[case::own_tool(r#"{"model":"m","tools":[{"type":"mcp","server_label":"x"}]}"#)]
    #[case::own_address_of_a_tool(r#"{"model":"m","tools":[{"type":"x","server_url":"https://x"}]}"#)]
    #[case::own_headers(r#"{"model":"m","extra_headers":{"x":"y"}}"#)]
    #[case::long_name(&format!(r#"{{"model":"{}"}}"#, "m".repeat(300)))]
    #[case::below_zero(r#"{"model":"m","max_tokens":-1}"#)]
    fn an_ambiguous_or_unsafe_call_is_an_error(#[case] body: &str) {
        assert!((CHAT.parse_call)("", Bytes::from(body.to_owned())).is_err());
    }

    #[rstest]
    #[case("previous_response_id")]
    #[case("conversation")]
    #[case("prompt")]
    fn stored_content_counts_as_a_whole_window(#[case] field: &str) {
        let body = format!(r#"{{"model":"m","max_output_tokens":1,"{field}":"x"}}"#);
        let call = (RESPONSES.parse_call)("", Bytes::from(body)).unwrap();
        assert_eq!(call.worst.input, MAX_WINDOW);
    }

    #[test]
    fn an_image_costs_at_most_a_window() {
        let body = format!(
            r#"{{"model":"m","max_tokens":1,"messages":"{}"}}"#,
            "A".repeat(5_000_000)
        );
        let call = (MESSAGES.parse_call)("", Bytes::from(body)).unwrap();
        assert_eq!(call.worst.input, MAX_WINDOW);
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(body: Vec<u8>) {
            let _ = (CHAT.parse_call)("", Bytes::from(body));
        }
    }
}
