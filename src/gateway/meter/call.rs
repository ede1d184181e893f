//! What a call asks for, and the most that it can use.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

use crate::usage::Tokens;

/// Bytes of a call per token, at the least. Prose, code and logs have three to four in every common tokenizer.
const BYTES_PER_TOKEN: u64 = 2;
/// No model takes more at once; a call with more is refused by the service, and images have many bytes per token.
const LARGEST_WINDOW: u64 = 1_000_000;
/// No model has a longer name. Names are kept for as long as the run lasts.
const LONGEST_NAME: usize = 256;
/// The most tokens of an answer where the call does not say. The call is then made to say so.
const OUTPUT_UNSAID: u64 = 32_000;

/// In which language a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Protocol {
    /// Anthropic's messages.
    Messages,
    /// OpenAI's responses.
    Responses,
    /// OpenAI's chat completions, which LiteLLM and many others speak.
    Chat,
}

/// A call that was read.
#[derive(Debug)]
pub(in crate::gateway) struct Call {
    /// The model that is asked.
    pub(in crate::gateway) model: String,
    /// The most tokens that it can use.
    pub(in crate::gateway) worst: Tokens,
    /// The call as it is forwarded: with a bound where it had none, and with the wish to be told the usage.
    pub(in crate::gateway) body: Bytes,
}

impl Call {
    /// Reads a call. What could be read in two ways is refused.
    pub(in crate::gateway) fn read(protocol: Protocol, body: Bytes) -> Result<Self, CallError> {
        let asked: Asked<'_> = serde_json::from_slice(&body)?;
        if asked.brings_its_own() {
            return Err(CallError::OwnEndpoint);
        }
        if asked.model.len() > LONGEST_NAME {
            return Err(CallError::LongName);
        }
        let bound = asked.bound(protocol);
        let answers = asked.n.unwrap_or(1).max(1);
        let input = if asked.refers_to_more() {
            LARGEST_WINDOW
        } else {
            (body.len() as u64).div_ceil(BYTES_PER_TOKEN).min(LARGEST_WINDOW)
        };
        let worst = Tokens {
            input,
            output: bound.unwrap_or(OUTPUT_UNSAID).saturating_mul(answers),
        };
        let additions = additions(protocol, &asked, bound);
        let model = asked.model.into_owned();
        Ok(Self {
            model,
            worst,
            body: with(body, &additions),
        })
    }
}

/// Why a call cannot be forwarded.
#[derive(Debug, Error)]
pub(in crate::gateway) enum CallError {
    /// It is no JSON object with a model, or says something twice.
    #[error("the body is not a call that can be read")]
    Unreadable(#[from] serde_json::Error),
    /// It brings a key or an address of its own.
    #[error("the body names a key, an address or a fallback of its own")]
    OwnEndpoint,
    /// The name of its model is none.
    #[error("the name of the model is longer than {LONGEST_NAME} bytes")]
    LongName,
}

/// What of a call matters here. A field that stands there twice is an error.
#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    n: Option<u64>,
    stream: Option<bool>,
    stream_options: Option<IgnoredAny>,
    #[serde(borrow)]
    tools: Option<Vec<Tool<'a>>>,
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

/// A tool that the model may use.
#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    server_url: Option<IgnoredAny>,
    connector_id: Option<IgnoredAny>,
}

impl Tool<'_> {
    /// Whether the service would use it at an address of the sandbox's choice.
    fn is_elsewhere(&self) -> bool {
        self.kind.as_deref() == Some("mcp") || self.server_url.is_some() || self.connector_id.is_some()
    }
}

impl Asked<'_> {
    /// Whether it names a key, an address or another model to go to. What is called runs outside of the sandbox and could
    /// be made to call anybody by that.
    fn brings_its_own(&self) -> bool {
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
        fields.into_iter().any(Option::is_some) || tools.into_iter().any(Tool::is_elsewhere)
    }

    /// Whether the service adds something that it keeps: then the size of the call says nothing.
    fn refers_to_more(&self) -> bool {
        let fields = [
            &self.previous_response_id,
            &self.conversation,
            &self.prompt,
            &self.container,
        ];
        fields.into_iter().any(Option::is_some)
    }

    /// The most tokens of an answer, as this language says it. A bound in another one could be overlooked.
    fn bound(&self, protocol: Protocol) -> Option<u64> {
        match protocol {
            Protocol::Messages => self.max_tokens,
            Protocol::Responses => self.max_output_tokens,
            Protocol::Chat => self.max_tokens.max(self.max_completion_tokens),
        }
    }
}

/// What a call is made to say, as JSON fields.
fn additions(protocol: Protocol, asked: &Asked<'_>, bound: Option<u64>) -> String {
    let field = match protocol {
        Protocol::Messages => "max_tokens",
        Protocol::Responses => "max_output_tokens",
        Protocol::Chat => "max_completion_tokens",
    };
    let mut additions = match bound {
        None => format!(",\"{field}\":{OUTPUT_UNSAID}"),
        Some(_) => String::new(),
    };
    if protocol == Protocol::Chat && asked.stream == Some(true) && asked.stream_options.is_none() {
        additions.push_str(",\"stream_options\":{\"include_usage\":true}");
    }
    additions
}

/// The object with more fields at its end; everything else stays as it was written.
fn with(body: Bytes, additions: &str) -> Bytes {
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

    #[rstest]
    #[case::messages(Protocol::Messages, r#"{"model":"m","max_tokens":64}"#, 64, "")]
    #[case::chat(
        Protocol::Chat,
        r#"{"model":"m","max_tokens":5,"max_completion_tokens":7}"#,
        7,
        ""
    )]
    #[case::several_answers(Protocol::Chat, r#"{"model":"m","max_tokens":5,"n":3}"#, 15, "")]
    #[case::no_bound(
        Protocol::Responses,
        r#"{"model":"m"}"#,
        32_000,
        r#","max_output_tokens":32000"#
    )]
    #[case::a_bound_of_another_language(
        Protocol::Responses,
        r#"{"model":"m","max_tokens":1}"#,
        32_000,
        r#","max_output_tokens":32000"#
    )]
    #[case::no_usage(
        Protocol::Chat,
        r#"{"model":"m","max_tokens":5,"stream":true}"#,
        5,
        r#","stream_options":{"include_usage":true}"#
    )]
    #[case::its_own_wish(
        Protocol::Chat,
        r#"{"model":"m","max_tokens":5,"stream":true,"stream_options":{}}"#,
        5,
        ""
    )]
    fn a_call_is_read(
        #[case] protocol: Protocol,
        #[case] body: &str,
        #[case] output: u64,
        #[case] added: &str,
    ) {
        let call = Call::read(protocol, Bytes::from(body.to_owned())).unwrap();
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
    fn what_could_be_read_in_two_ways_is_refused(#[case] body: &str) {
        assert!(Call::read(Protocol::Chat, Bytes::from(body.to_owned())).is_err());
    }

    #[rstest]
    #[case("previous_response_id")]
    #[case("conversation")]
    #[case("prompt")]
    fn what_the_service_keeps_counts_as_a_whole_window(#[case] field: &str) {
        let body = format!(r#"{{"model":"m","max_output_tokens":1,"{field}":"x"}}"#);
        let call = Call::read(Protocol::Responses, Bytes::from(body)).unwrap();
        assert_eq!(call.worst.input, LARGEST_WINDOW);
    }

    #[test]
    fn a_picture_does_not_cost_more_than_a_window() {
        let body = format!(
            r#"{{"model":"m","max_tokens":1,"messages":"{}"}}"#,
            "A".repeat(5_000_000)
        );
        let call = Call::read(Protocol::Messages, Bytes::from(body)).unwrap();
        assert_eq!(call.worst.input, LARGEST_WINDOW);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_no_harm(body: Vec<u8>) {
            let _ = Call::read(Protocol::Chat, Bytes::from(body));
        }
    }
}
