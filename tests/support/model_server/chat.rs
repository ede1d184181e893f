//! Chat completions shaped by recordings of what the real `opencode` sends. It refuses what the real ones refuse.

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};

use super::turns::{Asked, Refusal, Turn, json_body};
use super::{Shared, header};

/// What each turn uses.
pub const TOKENS_IN: u64 = 150;
pub const TOKENS_OUT: u64 = 25;

/// Answers one request; `None` takes it and never answers.
pub fn respond(shared: &Shared, headers: &HeaderMap, body: &Value) -> Option<Response> {
    if header(headers, "authorization") != format!("Bearer {}", shared.key) {
        return Some(refusal(401, "invalid_api_key", &[]));
    }
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    if messages.is_empty() || !body["model"].is_string() {
        return Some(refusal(400, "invalid_request_error", &[]));
    }
    let turn = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .count();
    let asked = Asked {
        session: shared.teller.session(header(headers, "x-session-id")),
        turn,
        headers: headers.clone(),
        body: body.clone(),
    };
    Some(match shared.teller.turn(asked) {
        Turn::Refuse(Refusal {
            status,
            kind,
            headers,
        }) => refusal(status, kind, &headers),
        Turn::Hang => return None,
        Turn::Say(text) => answer(
            shared,
            body,
            &json!({"role": "assistant", "content": text}),
            "stop",
        ),
        Turn::Run(command) => {
            let input = json!({"command": command, "description": "as the script has it"});
            answer(shared, body, &call(turn, "bash", &input), "tool_calls")
        }
        Turn::Use { tool, input } => answer(shared, body, &call(turn, tool, &input), "tool_calls"),
    })
}

fn call(turn: usize, tool: &str, input: &Value) -> Value {
    let function = json!({"name": tool, "arguments": input.to_string()});
    let call = json!({"index": 0, "id": format!("call_{turn}"), "type": "function", "function": function});
    json!({"role": "assistant", "tool_calls": [call]})
}

fn refusal(status: u16, kind: &str, headers: &[(String, String)]) -> Response {
    let error = json!({"message": "as the script has it", "type": kind, "code": kind});
    json_body(status, headers, &json!({"error": error}))
}

fn answer(shared: &Shared, request: &Value, delta: &Value, finish: &str) -> Response {
    let tokens_in = shared.tokens_in.load(Ordering::Relaxed);
    let chunk = |choices: Value, usage: Value| {
        json!({
            "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": request["model"], "choices": choices, "usage": usage,
        })
    };
    let usage = json!({
        "prompt_tokens": tokens_in, "completion_tokens": TOKENS_OUT, "total_tokens": tokens_in + TOKENS_OUT,
    });
    let mut chunks = vec![
        chunk(
            json!([{"index": 0, "delta": delta, "finish_reason": null}]),
            Value::Null,
        ),
        chunk(
            json!([{"index": 0, "delta": {}, "finish_reason": finish}]),
            Value::Null,
        ),
    ];
    if request["stream_options"]["include_usage"] == true {
        chunks.push(chunk(json!([]), usage));
    }
    let events: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(Body::from(format!("{events}data: [DONE]\n\n")))
        .unwrap()
}
