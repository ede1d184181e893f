//! The Responses API shaped by recordings of what the real `codex` sends. It
//! refuses what the real one refuses.

use std::sync::atomic::Ordering;

use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};

use super::turns::{Asked, Refusal, Turn, json_body, stream};
use super::{Shared, header};

/// What each turn uses.
pub const TOKENS_IN: u64 = 111;
pub const TOKENS_OUT: u64 = 22;

/// Answers one request; `None` takes it and says nothing.
pub fn respond(shared: &Shared, headers: &HeaderMap, body: &Value) -> Option<Response> {
    if let Some((status, kind, message)) = objection(&shared.key, headers, body) {
        return Some(refusal(status, kind, message, &[]));
    }
    let turn = outputs(body).count();
    let asked = Asked {
        session: shared.teller.session(header(headers, "session-id")),
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
        Turn::Say(text) => {
            let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
            answer(
                shared,
                body,
                &json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}),
            )
        }
        Turn::Run(command) => answer(
            shared,
            body,
            &call(turn, "exec_command", &json!({ "cmd": command })),
        ),
        Turn::Use { tool, input } => answer(shared, body, &call(turn, tool, &input)),
    };
    Some(response)
}

/// What the real one objects to.
fn objection(key: &str, headers: &HeaderMap, body: &Value) -> Option<(u16, &'static str, &'static str)> {
    if header(headers, "authorization") != format!("Bearer {key}") {
        return Some((401, "invalid_api_key", "Incorrect API key provided"));
    }
    let invalid = |message| Some((400, "invalid_request_error", message));
    if !body["model"].is_string() {
        return invalid("Missing required parameter: 'model'.");
    }
    if !body["input"].is_array() && !body["input"].is_string() {
        return invalid("Missing required parameter: 'input'.");
    }
    let called = |id: &Value| {
        let items = body["input"].as_array().into_iter().flatten();
        items
            .clone()
            .any(|item| item["type"] == "function_call" && item["call_id"] == *id)
    };
    if !outputs(body).all(|output| called(&output["call_id"])) {
        return invalid("No tool call found for function call output");
    }
    None
}

fn outputs(body: &Value) -> impl Iterator<Item = &Value> {
    let items = body["input"].as_array().into_iter().flatten();
    items.filter(|item| item["type"] == "function_call_output")
}

fn call(turn: usize, tool: &str, input: &Value) -> Value {
    json!({
        "type": "function_call", "id": format!("fc_{turn}"), "call_id": format!("call_{turn}"), "name": tool,
        "arguments": input.to_string(), "status": "completed",
    })
}

fn refusal(status: u16, kind: &str, message: &str, headers: &[(String, String)]) -> Response {
    json_body(
        status,
        headers,
        &json!({"error": {"message": message, "type": kind, "code": kind}}),
    )
}

fn answer(shared: &Shared, request: &Value, item: &Value) -> Response {
    let tokens_in = shared.tokens_in.load(Ordering::Relaxed);
    let response = |status: &str, output: Value, usage: Value| {
        json!({
            "id": "resp_scripted", "object": "response", "created_at": 1_700_000_000, "model": request["model"],
            "status": status, "output": output, "usage": usage,
        })
    };
    let usage = json!({
        "input_tokens": tokens_in, "input_tokens_details": {"cached_tokens": 11},
        "output_tokens": TOKENS_OUT, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens_in + TOKENS_OUT,
    });
    let whole = response("completed", json!([item]), usage);
    if request["stream"] != true {
        return json_body(200, &[], &whole);
    }
    let mut begun = item.clone();
    begun["status"] = json!("in_progress");
    stream(vec![
        json!({"type": "response.created", "response": response("in_progress", json!([]), Value::Null)}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": begun}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": whole}),
    ])
}
