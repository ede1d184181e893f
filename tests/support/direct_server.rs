//! The services that ralph calls directly, on the loopback: each has its own paths, headers, fields and errors, and refuses
//! what the real one refuses.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::chat_server::{Piece, exactly};

/// Which service a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    Zai,
    OpenAi,
    Anthropic,
    OpenRouter,
    Gemini,
    Ollama,
}

/// The key that every service wants, but Ollama.
pub const KEY: &str = "sk-direct-CANARY-0123456789";

/// What a server says to a call.
#[derive(Clone, Debug)]
pub enum Said {
    /// This text, with [`IN`] and [`OUT`] tokens, of which [`CACHED`] were cached.
    Text(String),
    /// A refusal with this status and error, in the format of the service.
    Error(u16, Value),
    /// Some text, then this error in the stream.
    Late(Value),
    /// Some text, with these fields in its usage besides.
    Billed(Value),
}

pub const IN: u64 = 12_345;
pub const OUT: u64 = 678;
pub const CACHED: u64 = 2_000;

/// A running service; it stops when dropped.
pub struct DirectServer {
    flavour: Flavour,
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    flavour: Flavour,
    script: Mutex<Script>,
    calls: Mutex<Vec<Value>>,
    /// The refusal of the check of a key, if it is refused although the key is right.
    check_refusal: Mutex<Option<(u16, Value)>>,
}

type Script = Box<dyn FnMut(&Value) -> Said + Send>;

impl DirectServer {
    /// A service that answers every call with this.
    pub async fn saying(flavour: Flavour, said: Said) -> Self {
        Self::start(flavour, move |_| said.clone()).await
    }

    /// A service that answers each call by its body.
    pub async fn start(flavour: Flavour, script: impl FnMut(&Value) -> Said + Send + 'static) -> Self {
        let shared = Arc::new(Shared {
            flavour,
            script: Mutex::new(Box::new(script)),
            calls: Mutex::default(),
            check_refusal: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().fallback(serve).with_state(shared.clone());
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            flavour,
            address,
            shared,
            task,
        }
    }

    /// The address, as the variable of the service takes it.
    pub fn base_url(&self) -> String {
        format!("http://{}{}", self.address, self.flavour.base_path())
    }

    /// Refuses the check of the right key with this status and error.
    pub fn refuse_check(&self, status: u16, error: Value) {
        *self.shared.check_refusal.lock().unwrap() = Some((status, error));
    }

    /// The bodies of the calls so far.
    pub fn calls(&self) -> Vec<Value> {
        self.shared.calls.lock().unwrap().clone()
    }
}

impl Drop for DirectServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Flavour {
    pub const ALL: [Self; 6] = [
        Self::Zai,
        Self::OpenAi,
        Self::Anthropic,
        Self::OpenRouter,
        Self::Gemini,
        Self::Ollama,
    ];

    fn base_path(self) -> &'static str {
        match self {
            Self::Zai => "/api/paas/v4",
            Self::OpenAi | Self::Ollama => "/v1",
            Self::Anthropic => "",
            Self::OpenRouter => "/api/v1",
            Self::Gemini => "/v1beta/openai",
        }
    }

    /// The free request that only a valid key passes. Z.ai documents none, and the list of OpenRouter is public.
    fn check_path(self) -> Option<String> {
        let path = match self {
            Self::Zai => return None,
            Self::Anthropic => "/v1/models",
            Self::OpenRouter => "/key",
            Self::OpenAi | Self::Gemini | Self::Ollama => "/models",
        };
        Some(format!("{}{path}", self.base_path()))
    }

    fn call_path(self) -> String {
        let path = match self {
            Self::Anthropic => "/v1/messages",
            _ => "/chat/completions",
        };
        format!("{}{path}", self.base_path())
    }

    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Anthropic => &["model", "max_tokens", "messages", "system", "stream"],
            // The models that reason refuse `max_tokens`, and a temperature, as Anthropic's newer models do.
            Self::OpenAi => &[
                "model",
                "messages",
                "max_completion_tokens",
                "stream",
                "stream_options",
            ],
            Self::Zai | Self::OpenRouter | Self::Gemini | Self::Ollama => &[
                "model",
                "messages",
                "max_tokens",
                "stream",
                "stream_options",
                "temperature",
            ],
        }
    }

    fn wrong_key(self) -> (u16, Value) {
        match self {
            Self::Zai => (401, json!({"code": "1000", "message": "Authentication Failed"})),
            Self::OpenAi => (
                401,
                json!({"message": "Incorrect API key provided", "type": "invalid_request_error", "param": null, "code": "invalid_api_key"}),
            ),
            Self::Anthropic => (
                401,
                json!({"type": "authentication_error", "message": "invalid x-api-key"}),
            ),
            Self::OpenRouter => (401, json!({"message": "User not found.", "code": 401})),
            Self::Gemini => (
                400,
                json!({"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT",
                    "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]}),
            ),
            Self::Ollama => (
                401,
                json!({"message": "no key was asked for", "type": "api_error"}),
            ),
        }
    }

    fn unknown_field(self, field: &str) -> (u16, Value) {
        let message = match self {
            Self::Anthropic => format!("{field}: Extra inputs are not permitted"),
            Self::Gemini => {
                format!("Invalid JSON payload received. Unknown name \"{field}\": Cannot find field.")
            }
            _ => format!("Unrecognized request argument supplied: {field}"),
        };
        (
            400,
            json!({"message": message, "type": "invalid_request_error", "code": null}),
        )
    }

    /// An error in the format of the service.
    fn error(self, error: Value) -> Value {
        match self {
            Self::Anthropic => json!({"type": "error", "error": error}),
            Self::Gemini => json!([{"error": error}]),
            _ => json!({"error": error}),
        }
    }
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let flavour = shared.flavour;
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let header = |name: &str| {
        let value = head.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let has_key = match flavour {
        Flavour::Anthropic => header("x-api-key") == KEY && header("authorization").is_empty(),
        Flavour::Ollama => header("authorization").is_empty(),
        _ => header("authorization") == format!("Bearer {KEY}"),
    };
    let path = head.uri.path();
    let refused = if !has_key {
        Some(flavour.wrong_key())
    } else if flavour == Flavour::Anthropic && header("anthropic-version") != "2023-06-01" {
        Some((
            400,
            json!({"type": "invalid_request_error", "message": "anthropic-version: header is required"}),
        ))
    } else if head.method == Method::GET && flavour.check_path().as_deref() == Some(path) {
        match shared.check_refusal.lock().unwrap().clone() {
            None => return whole(200, &json!({"data": []})),
            refusal => refusal,
        }
    } else if head.method != Method::POST || path != flavour.call_path() {
        Some((
            404,
            json!({"message": format!("no such path: {path}"), "type": "not_found_error"}),
        ))
    } else {
        objection(flavour, &body)
    };
    let said = match refused {
        Some((status, error)) => Said::Error(status, error),
        None => {
            shared.calls.lock().unwrap().push(body.clone());
            (shared.script.lock().unwrap())(&body)
        }
    };
    match said {
        Said::Error(status, error) => whole(status, &flavour.error(error)),
        Said::Text(text) => stream(events(flavour, &body, &text, None)),
        Said::Billed(usage) => stream(events(flavour, &body, "done", Some(&usage))),
        Said::Late(error) => {
            let mut pieces = events(flavour, &body, "half a word", None);
            pieces.truncate(2);
            pieces.push(Piece::event(&flavour.error(error)));
            stream(pieces)
        }
    }
}

/// What the real services object to.
fn objection(flavour: Flavour, body: &Value) -> Option<(u16, Value)> {
    let fields = body.as_object()?;
    if let Some(field) = fields
        .keys()
        .find(|name| !flavour.fields().contains(&name.as_str()))
    {
        return Some(flavour.unknown_field(field));
    }
    let missing = |what: &str| {
        Some((
            400,
            json!({"message": format!("{what}: field required"), "type": "invalid_request_error"}),
        ))
    };
    // The name of a model at its service has no prefix, but that of its vendor at OpenRouter.
    let has_prefix = body["model"].as_str().is_none_or(|model| {
        model.contains('/') != (flavour == Flavour::OpenRouter) || model.starts_with("openrouter/")
    });
    if has_prefix {
        return Some((
            404,
            json!({"message": format!("model: {}", body["model"]), "type": "not_found_error"}),
        ));
    }
    if flavour == Flavour::Anthropic && !body["max_tokens"].is_u64() {
        return missing("max_tokens");
    }
    let roles: &[&str] = match flavour {
        Flavour::Anthropic => &["user", "assistant"],
        _ => &["system", "user", "assistant"],
    };
    let has_text = |content: &Value| match content {
        Value::String(text) => !text.is_empty(),
        // Blocks, which ralph does not send, but LiteLLM does.
        Value::Array(blocks) => {
            flavour == Flavour::Anthropic && blocks.iter().all(|block| block["type"] == "text")
        }
        _ => false,
    };
    let well_formed = |message: &Value| {
        let role = message["role"].as_str().unwrap_or_default();
        roles.contains(&role) && has_text(&message["content"])
    };
    match body["messages"].as_array() {
        Some(messages) if !messages.is_empty() && messages.iter().all(well_formed) => None,
        _ => missing("messages"),
    }
}

/// The events of an answer. `billed` are fields of its usage.
fn events(flavour: Flavour, body: &Value, text: &str, billed: Option<&Value>) -> Vec<Piece> {
    let model = &body["model"];
    if flavour == Flavour::Anthropic {
        let usage = json!({"input_tokens": IN, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1});
        let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
            "stop_reason": null, "usage": usage});
        return [
            json!({"type": "message_start", "message": message}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "ping"}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": OUT}}),
            json!({"type": "message_stop"}),
        ]
        .map(|event| {
            let kind = event["type"].as_str().unwrap();
            Piece::Bytes(format!("event: {kind}\ndata: {event}\n\n").into_bytes())
        })
        .into();
    }
    let chunk = |choices: Value| json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": choices});
    let mut usage = json!({"prompt_tokens": IN, "completion_tokens": OUT, "total_tokens": IN + OUT,
        "prompt_tokens_details": {"cached_tokens": CACHED}});
    if flavour == Flavour::OpenRouter {
        usage["cost"] = json!(0.0123);
    }
    for (name, value) in billed.and_then(Value::as_object).into_iter().flatten() {
        usage[name] = value.clone();
    }
    let mut last = chunk(json!([]));
    last["usage"] = usage;
    vec![
        Piece::event(&chunk(
            json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]),
        )),
        Piece::event(&chunk(
            json!([{"index": 0, "delta": {"content": text}, "finish_reason": null}]),
        )),
        Piece::event(&chunk(
            json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
        )),
        Piece::event(&last),
        Piece::Bytes(b"data: [DONE]\n\n".to_vec()),
    ]
}

fn stream(pieces: Vec<Piece>) -> Response {
    let headers = vec![(
        "content-type".to_owned(),
        "text/event-stream; charset=utf-8".to_owned(),
    )];
    exactly(200, headers, pieces)
}

fn whole(status: u16, body: &Value) -> Response {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    exactly(status, headers, vec![Piece::Bytes(body.to_string().into_bytes())])
}
