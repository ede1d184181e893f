//! Google's `generateContent` shaped by recordings of what the real `gemini` sends. It refuses what the real one refuses.

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};

use super::turns::{Asked, Refusal, Turn, json_body};
use super::{Shared, header};

/// What each turn uses. Thinking is a part of the output.
pub const TOKENS_IN: u64 = 210;
pub const TOKENS_OUT: u64 = 33;
const THOUGHTS: u64 = 5;

/// Answers one request; `None` takes it and never answers.
pub fn respond(shared: &Shared, headers: &HeaderMap, body: &Value) -> Option<Response> {
    if header(headers, "x-goog-api-key") != shared.key {
        let details =
            json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]);
        return Some(refusal(400, "INVALID_ARGUMENT", &details, &[]));
    }
    let contents = body["contents"].as_array().cloned().unwrap_or_default();
    let parts = |content: &Value| content["parts"].as_array().cloned().unwrap_or_default();
    if contents.is_empty() || contents.iter().any(|content| parts(content).is_empty()) {
        return Some(refusal(400, "INVALID_ARGUMENT", &json!([]), &[]));
    }
    let has = |field: &str| {
        let parts = contents.iter().flat_map(parts);
        parts.filter(|part| part.get(field).is_some()).count()
    };
    let turn = has("functionResponse");
    if has("functionCall") != turn {
        return Some(refusal(400, "INVALID_ARGUMENT", &json!([]), &[]));
    }
    // There is no id of the session; its prompt is unique.
    let first: String = contents.iter().take(1).map(ToString::to_string).collect();
    let asked = Asked {
        session: shared.teller.session(&first),
        turn,
        headers: headers.clone(),
        body: body.clone(),
    };
    Some(match shared.teller.turn(asked) {
        Turn::Refuse(Refusal {
            status,
            kind,
            headers,
        }) => refusal(status, kind, &json!([]), &headers),
        Turn::Hang => return None,
        Turn::Say(text) => answer(shared, &json!({"text": text})),
        Turn::Run(command) => {
            let args = json!({"command": command, "description": "as the script has it"});
            answer(shared, &call("run_shell_command", &args))
        }
        Turn::Use { tool, input } => answer(shared, &call(tool, &input)),
    })
}

fn call(tool: &str, args: &Value) -> Value {
    json!({"functionCall": {"name": tool, "args": args}})
}

fn refusal(status: u16, kind: &str, details: &Value, headers: &[(String, String)]) -> Response {
    let error =
        json!({"code": status, "message": "as the script has it", "status": kind, "details": details});
    json_body(status, headers, &json!({"error": error}))
}

/// Two events: the first with the input tokens alone.
fn answer(shared: &Shared, part: &Value) -> Response {
    let tokens_in = shared.tokens_in.load(Ordering::Relaxed);
    let event = |parts: Value, finish: Value, out: u64, thoughts: u64| {
        json!({
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish, "index": 0}],
            "usageMetadata": {
                "promptTokenCount": tokens_in, "candidatesTokenCount": out, "thoughtsTokenCount": thoughts,
                "totalTokenCount": tokens_in + out + thoughts,
            },
            "modelVersion": "first-model",
        })
    };
    let mut first = event(json!([{"text": ""}]), Value::Null, 0, 0);
    first["candidates"][0]
        .as_object_mut()
        .unwrap()
        .remove("finishReason");
    let last = event(json!([part]), json!("STOP"), TOKENS_OUT - THOUGHTS, THOUGHTS);
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(Body::from(format!("data: {first}\r\n\r\ndata: {last}\r\n\r\n")))
        .unwrap()
}
