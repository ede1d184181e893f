//! Parses a call to a model: its model, and the most tokens that it can use.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use super::fields::CallTraits;
use crate::usage::{CallBound, Tokens};

/// The largest context window of any model.
pub(super) const MAX_WINDOW: u64 = 1 << 21;
/// The longest model name, in bytes. Names stay in memory until the run ends.
const MAX_MODEL_NAME: usize = 256;
/// The limit of output tokens that is added to a call without one.
const DEFAULT_OUTPUT: u64 = 32_000;

/// A parsed call.
#[derive(Debug)]
pub(crate) struct MeteredCall {
    /// The name of the model.
    pub(crate) model: String,
    /// The most that the call can cost.
    pub(crate) worst: CallBound,
    /// The body to forward, with a limit on output tokens and a request to report usage.
    pub(crate) body: Bytes,
}

impl MeteredCall {
    /// A call that is forwarded as it is.
    pub(super) fn new(model: &str, output: u64, traits: CallTraits, body: Bytes) -> Result<Self, CallError> {
        if model.len() > MAX_MODEL_NAME {
            return Err(CallError::LongName);
        }
        // No tokenizer makes more than one token of a byte of text.
        let tokens = Tokens {
            input: (body.len() as u64).min(MAX_WINDOW),
            output,
        };
        let whole_window = Tokens {
            input: MAX_WINDOW,
            output,
        };
        let worst = CallBound {
            tokens: if traits.is_unbounded { whole_window } else { tokens },
            known: traits.is_unbounded.then_some(tokens),
            input_percent: 100,
            price_percent: traits.price_percent,
        };
        Ok(Self {
            model: model.to_owned(),
            worst,
            body,
        })
    }

    /// Parses a call of Anthropic's or OpenAI's APIs. A limit on output tokens is added to a call without one.
    pub(super) fn parse(format: &CallFormat, traits: CallTraits, body: &Bytes) -> Result<Self, CallError> {
        let fields: CallFields<'_> = serde_json::from_slice(body)?;
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
        let mut call = Self::new(&fields.model, output, traits, body.clone())?;
        call.worst.input_percent = format.input_percent;
        if fields.uses_stored_content() {
            call.worst.tokens.input = MAX_WINDOW;
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
    /// What an input token can cost, in percent of its price: Anthropic charges twice the price for what is cached for an
    /// hour.
    pub(super) input_percent: u64,
}

/// Why a call is not forwarded.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// It is not a JSON object with a model, or has a duplicate field.
    #[error("cannot parse the body of the request")]
    Unreadable(#[from] serde_json::Error),
    /// A field is not on the list of its API.
    #[error(
        "the field `{field}` is not one that agents are known to send; if yours needs it, add it to allowed_fields in \
         [sandbox.model_calls]"
    )]
    Field {
        /// Its path.
        field: String,
    },
    /// A field has a value that is not on the list of its API.
    #[error(
        "the field `{field}` must not be `{value}`; if your agent needs it, add `{field}` to allowed_fields in \
         [sandbox.model_calls]"
    )]
    Value {
        /// Its path.
        field: String,
        /// The value.
        value: String,
    },
    /// A field is there twice, or its name looks like a path.
    #[error("the field `{field}` is ambiguous")]
    Ambiguous {
        /// Its path.
        field: String,
    },
    /// The service would load content from an address that the policy does not allow.
    #[error(
        "the field `{field}` makes the service load `{address}`; send the content itself, or allow the host of the address \
         in [sandbox.network]"
    )]
    Address {
        /// Its path.
        field: String,
        /// The start of the address.
        address: String,
    },
    /// The name of the model is too long.
    #[error("the name of the model is longer than {MAX_MODEL_NAME} bytes")]
    LongName,
}

/// The fields of a call that matter here. A duplicate field is an error.
#[derive(Deserialize)]
pub(super) struct CallFields<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(default, deserialize_with = "not_null")]
    pub(super) max_tokens: Option<u64>,
    #[serde(default, deserialize_with = "not_null")]
    pub(super) max_completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "not_null")]
    pub(super) max_output_tokens: Option<u64>,
    n: Option<u64>,
    stream: Option<bool>,
    #[serde(default, deserialize_with = "not_null")]
    stream_options: Option<IgnoredAny>,
    previous_response_id: Option<IgnoredAny>,
    conversation: Option<IgnoredAny>,
    prompt: Option<IgnoredAny>,
    container: Option<IgnoredAny>,
}

impl CallFields<'_> {
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

/// A field whose absence matters: `null` would look like it, and a field that is added would be there twice.
fn not_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
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
    use crate::model::service::anthropic::MESSAGES;
    use crate::model::service::openai::{CHAT, RESPONSES};
    use crate::model::service::{CallRules, ModelApi};

    fn parse(api: &ModelApi, body: &str, fields: &[String]) -> Result<MeteredCall, CallError> {
        let rules = CallRules {
            fields,
            allows_address: &|_| false,
        };
        api.parse("", rules, Bytes::from(body.to_owned()))
    }

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
        let call = parse(api, body, &[]).unwrap();
        let tokens = Tokens {
            input: body.len() as u64,
            output,
        };
        assert_eq!((call.model.as_str(), call.worst.tokens), ("m", tokens));
        assert_eq!(call.worst.known, None);
        let expected = format!("{}{added}}}", &body[..body.len() - 1]);
        assert_eq!(call.body, expected.as_bytes());
        serde_json::from_slice::<serde_json::Value>(&call.body).unwrap();
    }

    #[rstest]
    #[case::no_model("{}")]
    #[case::two_values(r#"{"model":"m"}{"model":"m"}"#)]
    #[case::long_name(&format!(r#"{{"model":"{}"}}"#, "m".repeat(300)))]
    #[case::null_limit(r#"{"model":"m","max_completion_tokens":null}"#)]
    #[case::below_zero(r#"{"model":"m","max_tokens":-1}"#)]
    fn an_unreadable_call_is_an_error(#[case] body: &str) {
        assert!(parse(&CHAT, body, &[]).is_err());
    }

    /// These are fields that the configuration has to allow.
    #[rstest]
    #[case("previous_response_id")]
    #[case("conversation")]
    #[case("prompt")]
    fn stored_content_counts_as_a_whole_window(#[case] field: &str) {
        let body = format!(r#"{{"model":"m","max_output_tokens":1,"{field}":"x"}}"#);
        assert!(parse(&RESPONSES, &body, &[]).is_err());
        let call = parse(&RESPONSES, &body, &[field.to_owned()]).unwrap();
        assert_eq!(call.worst.tokens.input, MAX_WINDOW);
    }

    #[rstest]
    #[case(
        &MESSAGES,
        r#"{"model":"m","max_tokens":9,"messages":[{"content":[{"source":{"type":"base64","data":"AA"}}]}]}"#
    )]
    #[case(
        &CHAT,
        r#"{"model":"m","max_tokens":9,"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,AA"}}]}]}"#
    )]
    #[case(
        &RESPONSES,
        r#"{"model":"m","max_output_tokens":9,"input":[{"content":[{"image_url":"data:image/png;base64,AA"}]}]}"#
    )]
    fn a_small_image_can_be_many_tokens(#[case] api: &ModelApi, #[case] body: &str) {
        let worst = parse(api, body, &[]).unwrap().worst;
        assert_eq!(worst.tokens.input, MAX_WINDOW);
        assert!(worst.known.is_some());
    }

    #[rstest]
    #[case(r#"{"type":"item_reference","id":"msg_1"}"#)]
    #[case(r#"{"id":"msg_1"}"#)]
    fn items_that_the_service_stores_are_refused(#[case] item: &str) {
        let body = format!(r#"{{"model":"m","max_output_tokens":1,"input":[{item}]}}"#);
        assert!(parse(&RESPONSES, &body, &[]).is_err());
    }

    #[test]
    fn long_text_costs_at_most_a_window() {
        let body = format!(
            r#"{{"model":"m","max_tokens":1,"messages":"{}"}}"#,
            "A".repeat(5_000_000)
        );
        let call = parse(&MESSAGES, &body, &[]).unwrap();
        assert_eq!(call.worst.tokens.input, MAX_WINDOW);
    }

    #[rstest]
    #[case(&MESSAGES, r#"{"model":"m","max_tokens":9,"tools":[{"type":"web_search_20250305","name":"w"}]}"#)]
    #[case(&RESPONSES, r#"{"model":"m","max_output_tokens":9,"tools":[{"type":"web_search"}]}"#)]
    #[case(
        &RESPONSES,
        r#"{"model":"m","max_output_tokens":9,"input":[{"tools":[{"tools":[{"type":"web_search"}]}]}]}"#
    )]
    fn a_tool_of_the_service_has_no_bound(#[case] api: &ModelApi, #[case] body: &str) {
        let worst = parse(api, body, &[]).unwrap().worst;
        let known = Tokens {
            input: body.len() as u64,
            output: 9,
        };
        assert_eq!((worst.tokens.input, worst.known), (MAX_WINDOW, Some(known)));
    }

    #[rstest]
    #[case::standard(&CHAT, r#"{"model":"m","service_tier":"default"}"#, Some(100))]
    #[case::dearer(&CHAT, r#"{"model":"m","service_tier":"priority"}"#, Some(300))]
    #[case::spelled_otherwise(&RESPONSES, r#"{"model":"m","service_t\u0069er":"prior\u0069ty"}"#, Some(300))]
    #[case::unknown(&RESPONSES, r#"{"model":"m","service_tier":"express"}"#, None)]
    #[case::fast(&MESSAGES, r#"{"model":"m","max_tokens":1,"speed":"fast"}"#, None)]
    fn a_tier_multiplies_the_price(#[case] api: &ModelApi, #[case] body: &str, #[case] percent: Option<u64>) {
        let call = parse(api, body, &[]).ok();
        assert_eq!(call.map(|call| call.worst.price_percent), percent);
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(body: Vec<u8>) {
            let rules = CallRules { fields: &[], allows_address: &|_| false };
            let _ = CHAT.parse("", rules, Bytes::from(body));
        }
    }
}
