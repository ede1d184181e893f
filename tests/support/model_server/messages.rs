//! The Messages API shaped by recordings of what the real `claude` sends. It
//! refuses what the real one refuses.

use std::sync::atomic::Ordering;

use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};

use super::turns::{Asked, Refusal, Turn, json_body, stream};
use super::{Shared, header, shows_key};

/// What each turn uses.
pub const TOKENS_IN: u64 = 321;
pub const TOKENS_OUT: u64 = 42;

/// Answers one request; `None` takes it and says nothing.
pub fn respond(shared: &Shared, headers: &HeaderMap, body: &Value) -> Option<Response> {
    if let Some((status, kind, message)) = objection(&shared.key, headers, body) {
        return Some(refusal(status, kind, message, &[]));
    }
    let said = body["messages"].as_array().unwrap();
    let turn = said
        .iter()
        .filter(|message| message["role"] == "assistant")
        .count();
    let asked = Asked {
        session: shared.teller.session(header(headers, "x-claude-code-session-id")),
        turn,
        headers: headers.clone(),
        body: body.clone(),
    };
    let response = match shared.teller.turn(asked) {
        Turn::Refuse(Refusal {
            status,
            kind,
            headers,
        }) => refusal(status, kind, "as the script has it", &headers),
        Turn::Hang => return None,
        Turn::Say(text) => answer(shared, body, &json!({"type": "text", "text": text})),
        Turn::Run(command) => {
            let input = json!({"command": command, "description": "as the script has it"});
            answer(shared, body, &tool_use(turn, "Bash", &input))
        }
        Turn::Use { tool, input } => answer(shared, body, &tool_use(turn, tool, &input)),
    };
    Some(response)
}

/// What the real one objects to.
fn objection(key: &str, headers: &HeaderMap, body: &Value) -> Option<(u16, &'static str, &'static str)> {
    if !shows_key(key, headers) {
        return Some((401, "authentication_error", "invalid x-api-key"));
    }
    let invalid = |message| Some((400, "invalid_request_error", message));
    if header(headers, "anthropic-version").is_empty() {
        return invalid("anthropic-version: header is required");
    }
    if !body["model"].is_string() || !body["max_tokens"].is_u64() {
        return invalid("model and max_tokens: Field required");
    }
    let Some(messages) = body["messages"]
        .as_array()
        .filter(|messages| !messages.is_empty())
    else {
        return invalid("messages: at least one message is required");
    };
    if messages[0]["role"] != "user" {
        return invalid("messages: first message must use the user role");
    }
    let blocks = |kind: &str, id: &str| -> Vec<String> {
        let all = messages
            .iter()
            .filter_map(|message| message["content"].as_array())
            .flatten();
        all.filter(|block| block["type"] == kind)
            .map(|block| block[id].to_string())
            .collect()
    };
    let (used, results) = (blocks("tool_use", "id"), blocks("tool_result", "tool_use_id"));
    if used != results {
        return invalid("messages: `tool_use` ids without `tool_result` blocks, or the other way round");
    }
    None
}

fn tool_use(turn: usize, tool: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": format!("toolu_{turn:024}"), "name": tool, "input": input})
}

fn refusal(status: u16, kind: &str, message: &str, headers: &[(String, String)]) -> Response {
    let body =
        json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"});
    json_body(status, headers, &body)
}

fn answer(shared: &Shared, request: &Value, block: &Value) -> Response {
    let stop_reason = match block["type"].as_str() {
        Some("text") => "end_turn",
        _ => "tool_use",
    };
    let tokens_in = shared.tokens_in.load(Ordering::Relaxed);
    let usage = |output: u64| json!({"input_tokens": tokens_in, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": output});
    let message = |content: Value, stop: Value, output: u64| {
        json!({
            "id": format!("msg_{:024}", fastrand::u64(..)), "type": "message", "role": "assistant",
            "model": request["model"], "content": content, "stop_reason": stop, "stop_sequence": null,
            "usage": usage(output),
        })
    };
    if request["stream"] != true {
        return json_body(200, &[], &message(json!([block]), json!(stop_reason), TOKENS_OUT));
    }
    let (begun, delta) = if block["type"] == "text" {
        (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": block["text"]}),
        )
    } else {
        let mut begun = block.clone();
        begun["input"] = json!({});
        let input = block["input"].to_string();
        (begun, json!({"type": "input_json_delta", "partial_json": input}))
    };
    stream(vec![
        json!({"type": "message_start", "message": message(json!([]), Value::Null, 1)}),
        json!({"type": "content_block_start", "index": 0, "content_block": begun}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": null}, "usage": {"output_tokens": TOKENS_OUT}}),
        json!({"type": "message_stop"}),
    ])
}
