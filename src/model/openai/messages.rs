//! Anthropic's Messages API: the body of a call, and its events as chunks of a chat completion.

use serde::Deserialize;
use serde_json::{Value, json};

use super::wire::{ChatChoice, ChatChunk, ChatDelta, ChatUsage, ErrorBody, PromptDetails};
use crate::model::{MessageRole, ModelMessage, ModelRequest};

/// The version of the API that is spoken.
pub(super) const VERSION: &str = "2023-06-01";

/// The body of a call to a model of this name. Instructions have a field of their own.
pub(super) fn messages_request(request: &ModelRequest, model: &str) -> Value {
    let is_system = |message: &&ModelMessage| message.role == MessageRole::System;
    let system: Vec<&str> = request
        .messages
        .iter()
        .filter(is_system)
        .map(|message| message.content.as_str())
        .collect();
    let messages: Vec<&ModelMessage> = request.messages.iter().filter(|one| !is_system(one)).collect();
    let mut body = json!({
        "model": model,
        "max_tokens": request.profile.max_output_tokens,
        "messages": messages,
        "stream": true,
    });
    if !system.is_empty() {
        body["system"] = system.join("\n\n").into();
    }
    body
}

/// Parses an event of a stream, or an answer in one body.
pub(super) fn parse_event(json: &[u8]) -> Result<ChatChunk, serde_json::Error> {
    let event: MessagesEvent = serde_json::from_slice(json)?;
    let mut chunk = ChatChunk {
        is_last: event.kind == "message_stop",
        error: event.error,
        ..ChatChunk::default()
    };
    let message = match event.kind.as_str() {
        "message" => Some(serde_json::from_slice(json)?),
        _ => event.message,
    };
    if let Some(message) = message {
        chunk.model = message.model;
        chunk.usage = message.usage.map(ChatUsage::from);
        let text: String = message
            .content
            .into_iter()
            .filter_map(|block| block.text)
            .collect();
        chunk.choices.push(choice(Some(text), message.stop_reason));
    }
    if let Some(delta) = event.delta {
        chunk.choices.push(choice(delta.text, delta.stop_reason));
        chunk.usage = event.usage.map(ChatUsage::from);
    }
    Ok(chunk)
}

fn choice(content: Option<String>, stop_reason: Option<String>) -> ChatChoice {
    ChatChoice {
        delta: Some(ChatDelta { content }),
        finish_reason: stop_reason.map(|reason| match reason.as_str() {
            "max_tokens" | "model_context_window_exceeded" => "length".to_owned(),
            _ => reason,
        }),
    }
}

#[derive(Deserialize)]
struct MessagesEvent {
    #[serde(rename = "type", default)]
    kind: String,
    message: Option<MessageBody>,
    delta: Option<MessageDelta>,
    usage: Option<MessageUsage>,
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct MessageBody {
    model: Option<String>,
    #[serde(default)]
    content: Vec<ContentBlock>,
    stop_reason: Option<String>,
    usage: Option<MessageUsage>,
}

/// A part of the answer. Thoughts have no `text`.
#[derive(Deserialize)]
struct ContentBlock {
    text: Option<String>,
}

#[derive(Deserialize)]
struct MessageDelta {
    text: Option<String>,
    stop_reason: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names of the API")]
struct MessageUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

impl From<MessageUsage> for ChatUsage {
    /// Cached input is counted besides `input_tokens`.
    fn from(usage: MessageUsage) -> Self {
        let cached = usage.cache_read_input_tokens;
        let written = usage.cache_creation_input_tokens;
        let besides = cached
            .unwrap_or_default()
            .saturating_add(written.unwrap_or_default());
        Self {
            prompt_tokens: usage.input_tokens.map(|input| input.saturating_add(besides)),
            completion_tokens: usage.output_tokens,
            prompt_tokens_details: usage.input_tokens.map(|_| PromptDetails {
                cached_tokens: cached,
                cache_write_tokens: written,
            }),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rstest::rstest;

    use super::*;
    use crate::model::openai::partial_reply::PartialReply;
    use crate::model::openai::sse::EventParser;
    use crate::model::openai::wire::chat_request;
    use crate::model::{
        ANTHROPIC, CallPurpose, CallRules, ModelReply, ModelRequest, ModelService, OPENAI, PriceTable,
        Profile,
    };
    use crate::usage::Tokens;

    fn request() -> ModelRequest {
        let model = "anthropic/claude-opus-4-5";
        let instruction = ModelMessage {
            role: MessageRole::System,
            content: "Be brief.".to_owned(),
        };
        ModelRequest {
            profile: Profile {
                temperature: Some(0.5),
                list_price: PriceTable::shipped().price(model),
                ..Profile::new("p", model)
            },
            messages: vec![
                instruction,
                ModelMessage::user("hi"),
                ModelMessage::assistant("ho"),
            ],
            iteration: 1,
            call: 0,
            purpose: CallPurpose::Agent,
        }
    }

    #[test]
    fn instructions_have_a_field_of_their_own() {
        let body = messages_request(&request(), "claude-opus-4-5");
        let expected = json!({
            "model": "claude-opus-4-5",
            "max_tokens": 4096,
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}],
            "stream": true,
        });
        assert_eq!(body, expected);
    }

    /// The lists of fields are taken from recorded calls of the vendors' own clients.
    #[rstest]
    #[case::messages(&ANTHROPIC, "/v1/messages", messages_request(&request(), "m"))]
    #[case::chat(&OPENAI, "/v1/chat/completions", chat_request(&request(), "m", "max_tokens"))]
    #[case::openai(&OPENAI, "/v1/chat/completions", chat_request(&request(), "m", "max_completion_tokens"))]
    fn bodies_have_recorded_fields_only(
        #[case] service: &ModelService,
        #[case] path: &str,
        #[case] body: Value,
    ) {
        let rules = CallRules {
            fields: &[],
            allows_address: &|_| false,
        };
        let api = service.route("POST", path).and_then(|route| route.api).unwrap();
        api.parse(path, rules, Bytes::from(body.to_string())).unwrap();
    }

    fn read(events: &str) -> Option<ModelReply> {
        let mut reply = PartialReply::default();
        for event in EventParser::default().push(events.as_bytes()) {
            reply.add(parse_event(event.as_bytes()).unwrap(), &mut |_| {});
        }
        reply.finish(&request().profile, None, false)
    }

    #[test]
    fn a_recorded_stream_is_read() {
        let file = include_str!("../../../tests/fixtures/litellm/upstream-anthropic-messages-stream.json");
        let recording: Value = serde_json::from_str(file).unwrap();
        let reply = read(recording["response"]["body"].as_str().unwrap()).unwrap();
        assert_eq!(
            (reply.text.as_str(), reply.model.as_str(), reply.cut_off),
            ("Done: hi from the fake model. ", "claude-opus-5-5", false)
        );
        let tokens = Tokens {
            input: 321,
            output: 42,
        };
        assert_eq!(reply.tokens, Some(tokens));
        assert_eq!(reply.cost.unwrap().to_string(), "$0.0027");
    }

    #[test]
    fn cached_input_counts_and_thoughts_are_no_text() {
        let start = json!({"type": "message_start", "message": {"model": "m", "usage":
            {"input_tokens": 100, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 10, "output_tokens": 1}}});
        let thought =
            json!({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}});
        let end = json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 7}});
        let reply = read(&format!("data: {start}\n\ndata: {thought}\n\ndata: {end}\n\n")).unwrap();
        let tokens = Tokens {
            input: 1110,
            output: 7,
        };
        assert_eq!(
            (reply.text.as_str(), reply.tokens, reply.cut_off),
            ("", Some(tokens), true)
        );
        // 100 at $5, 1000 at $0.5, 10 at $6.25, 7 at $25 per million.
        let nanos = 100 * 5000 + 1000 * 500 + 10 * 6250 + 7 * 25_000;
        assert_eq!(serde_json::to_value(reply.cost).unwrap(), json!(nanos));
    }
}
