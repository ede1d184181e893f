//! The services of Anthropic and OpenAI in one, on the loopback: their three ways of asking a model, and the server that
//! renews logins. It is shaped by what the real ones were recorded to say, and refuses what they refuse.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::chat_server::{Piece, exactly};

/// A running service; it stops when dropped.
pub struct ModelService {
    pub address: std::net::SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    script: Mutex<Script>,
    requests: Mutex<Vec<Recorded>>,
    login: Mutex<Login>,
    key: String,
}

type Script = Box<dyn FnMut(&Recorded) -> Answer + Send>;

/// What the token server knows of the one login there is.
struct Login {
    /// How often it was renewed: the tokens that are good now end in this number.
    renewed: u32,
    on_refresh: OnRefresh,
}

/// What the token server does.
#[derive(Clone, Copy)]
pub enum OnRefresh {
    Answer,
    /// Renews the login and never answers: the process that asked is dead by then.
    RenewAndHang,
    /// Takes its time.
    Slowly,
}

/// A request that reached the service.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub method: String,
    pub target: String,
    pub headers: HashMap<String, String>,
    pub body: Value,
    pub raw: String,
}

impl Recorded {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// What a model answers.
#[derive(Clone)]
pub enum Answer {
    /// Words, with this usage, in the language and form that was asked for.
    Words(Usage),
    /// Words in pieces, each after a pause.
    Slow(Usage, usize, Duration),
    /// Words that do not say what they used.
    Unmetered,
    /// Words that break off.
    Cut(Usage),
    /// Exactly this.
    Exactly(u16, Vec<(&'static str, String)>, String),
}

/// Tokens.
#[derive(Clone, Copy)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
}

pub const USED: Usage = Usage {
    input: 321,
    output: 42,
};
/// The key that is good.
pub const KEY: &str = "sk-ant-api03-CANARY-0123456789";
/// The login that is good at first.
pub const ACCESS: &str = "sk-ant-oat01-CANARY-ACCESS-0";
pub const REFRESH: &str = "sk-ant-ort01-CANARY-REFRESH-0";

impl ModelService {
    /// A service that takes [`KEY`] and answers every call with the same.
    pub async fn answering(answer: Answer) -> Self {
        Self::scripted(KEY, move |_| answer.clone()).await
    }

    /// A service that takes this key and decides by the request.
    pub async fn scripted(key: &str, script: impl FnMut(&Recorded) -> Answer + Send + 'static) -> Self {
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            requests: Mutex::default(),
            login: Mutex::new(Login {
                renewed: 0,
                on_refresh: OnRefresh::Answer,
            }),
            key: key.to_owned(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().fallback(serve).with_state(shared.clone());
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            address,
            shared,
            task,
        }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything that was asked of models so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// How often the login was renewed.
    pub fn renewals(&self) -> u32 {
        self.shared.login.lock().unwrap().renewed
    }

    pub fn on_refresh(&self, what: OnRefresh) {
        self.shared.login.lock().unwrap().on_refresh = what;
    }
}

impl Drop for ModelService {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (
        Parts {
            method, uri, headers, ..
        },
        body,
    ) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let recorded = Recorded {
        method: method.to_string(),
        target: uri.to_string(),
        headers: headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        raw: String::from_utf8_lossy(&body).into_owned(),
    };
    if uri.path() == "/v1/oauth/token" {
        return renew(&shared, &recorded.body).await;
    }
    shared.requests.lock().unwrap().push(recorded.clone());
    let anthropic = uri.path().starts_with("/v1/messages");
    if let Some((status, message)) = objection(&shared, &recorded, uri.path()) {
        return refuse(anthropic, status, message);
    }
    match (method.as_str(), uri.path()) {
        ("GET", "/v1/models") => whole(
            200,
            &json!({"object": "list", "data": [{"id": "m", "object": "model"}]}),
        ),
        ("POST", "/v1/messages/count_tokens") => whole(200, &json!({"input_tokens": 100})),
        _ => {
            let answer = (shared.script.lock().unwrap())(&recorded);
            answered(answer, &recorded, uri.path())
        }
    }
}

/// What the real services object to.
fn objection(shared: &Shared, request: &Recorded, path: &str) -> Option<(u16, &'static str)> {
    let access = format!(
        "Bearer sk-ant-oat01-CANARY-ACCESS-{}",
        shared.login.lock().unwrap().renewed
    );
    let (key, bearer) = (request.header("x-api-key"), request.header("authorization"));
    let by_key = key == shared.key || bearer == format!("Bearer {}", shared.key);
    let by_login = bearer == access && request.header("anthropic-beta").contains("oauth-2025-04-20");
    if !by_key && !by_login {
        return Some((401, "invalid x-api-key"));
    }
    if request.method == "GET" {
        return None;
    }
    let body = &request.body;
    let anthropic = path.starts_with("/v1/messages");
    if anthropic && request.header("anthropic-version").is_empty() {
        return Some((400, "anthropic-version: header is required"));
    }
    if !body["model"].is_string() {
        return Some((400, "model: field required"));
    }
    if path == "/v1/messages" && !body["max_tokens"].is_u64() {
        return Some((400, "max_tokens: field required"));
    }
    let words = if path == "/v1/responses" {
        "input"
    } else {
        "messages"
    };
    if body[words].is_null() {
        return Some((400, "there is nothing to answer"));
    }
    None
}

/// The token server: a refresh token is good for one use.
async fn renew(shared: &Shared, body: &Value) -> Response {
    let (renewed, what) = {
        let mut login = shared.login.lock().unwrap();
        let expected = format!("sk-ant-ort01-CANARY-REFRESH-{}", login.renewed);
        let is_whole = body["grant_type"] == "refresh_token"
            && body["client_id"].is_string()
            && body["scope"].is_string();
        if body["refresh_token"] != expected || !is_whole {
            return whole(
                400,
                &json!({"error": "invalid_grant", "error_description": "Refresh token not found or invalid"}),
            );
        }
        login.renewed += 1;
        (login.renewed, login.on_refresh)
    };
    match what {
        OnRefresh::Answer => {}
        OnRefresh::RenewAndHang => std::future::pending().await,
        OnRefresh::Slowly => tokio::time::sleep(Duration::from_millis(300)).await,
    }
    whole(
        200,
        &json!({
            "token_type": "Bearer", "access_token": format!("sk-ant-oat01-CANARY-ACCESS-{renewed}"),
            "refresh_token": format!("sk-ant-ort01-CANARY-REFRESH-{renewed}"), "expires_in": 28800,
            "scope": "user:inference", "account": {"email_address": "a@b.example"},
        }),
    )
}

fn answered(answer: Answer, request: &Recorded, path: &str) -> Response {
    let streamed = request.body["stream"] == true;
    let words = Words { request, path };
    let (usage, said, pause, cut) = match answer {
        Answer::Exactly(status, headers, body) => {
            let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value));
            return exactly(status, headers.collect(), vec![Piece::Bytes(body.into_bytes())]);
        }
        Answer::Words(usage) => (Some(usage), 3, None, false),
        Answer::Slow(usage, count, pause) => (Some(usage), count, Some(pause), false),
        Answer::Unmetered => (None, 3, None, false),
        Answer::Cut(usage) => (Some(usage), 3, None, true),
    };
    if !streamed {
        return whole(200, &words.body(usage));
    }
    let mut pieces = vec![words.beginning(usage)];
    for _ in 0..said {
        pieces.extend(pause.map(Piece::Pause));
        pieces.push(words.word());
    }
    if cut {
        pieces.push(Piece::Cut);
    } else {
        pieces.extend(words.end(usage));
    }
    let headers = vec![(
        "content-type".to_owned(),
        "text/event-stream; charset=utf-8".to_owned(),
    )];
    exactly(200, headers, pieces)
}

/// One answer, in the language that was asked for.
struct Words<'a> {
    request: &'a Recorded,
    path: &'a str,
}

impl Words<'_> {
    fn body(&self, usage: Option<Usage>) -> Value {
        let model = &self.request.body["model"];
        match self.path {
            "/v1/messages" => json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "hello"}], "usage": usage.map(anthropic),
            }),
            "/v1/responses" => self.response("completed", usage),
            _ => json!({
                "id": "chatcmpl-1", "object": "chat.completion", "model": model, "usage": usage.map(openai),
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
            }),
        }
    }

    fn response(&self, status: &str, usage: Option<Usage>) -> Value {
        let content = json!([{"type": "output_text", "text": "hello", "annotations": []}]);
        let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content});
        json!({
            "id": "resp_1", "object": "response", "created_at": 1_741_476_542, "model": self.request.body["model"],
            "status": status, "output": [message], "error": null, "incomplete_details": null, "instructions": null,
            "metadata": {}, "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [],
            "top_p": 1.0, "max_output_tokens": null, "usage": usage.map(responses),
        })
    }

    fn beginning(&self, usage: Option<Usage>) -> Piece {
        match self.path {
            "/v1/messages" => {
                let mut message = self.body(usage);
                if usage.is_some() {
                    message["usage"]["output_tokens"] = json!(1);
                }
                named(
                    "message_start",
                    &json!({"type": "message_start", "message": message}),
                )
            }
            "/v1/responses" => {
                let created = self.response("in_progress", None);
                named(
                    "response.created",
                    &json!({"type": "response.created", "response": created}),
                )
            }
            _ => Piece::event(
                &json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}], "usage": null}),
            ),
        }
    }

    fn word(&self) -> Piece {
        match self.path {
            "/v1/messages" => named(
                "content_block_delta",
                &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}),
            ),
            "/v1/responses" => named(
                "response.output_text.delta",
                &json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": "word "}),
            ),
            _ => Piece::event(
                &json!({"choices": [{"index": 0, "delta": {"content": "word "}}], "usage": null}),
            ),
        }
    }

    fn end(&self, usage: Option<Usage>) -> Vec<Piece> {
        match self.path {
            "/v1/messages" => {
                let mut delta = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}});
                if let Some(usage) = usage {
                    delta["usage"] = json!({"output_tokens": usage.output});
                }
                vec![
                    named("message_delta", &delta),
                    named("message_stop", &json!({"type": "message_stop"})),
                ]
            }
            "/v1/responses" => vec![named(
                "response.completed",
                &json!({"type": "response.completed", "response": self.body(usage)}),
            )],
            _ => {
                let asked = self.request.body["stream_options"]["include_usage"] == true;
                let usage = usage
                    .filter(|_| asked)
                    .map(|usage| Piece::event(&json!({"choices": [], "usage": openai(usage)})));
                let done = Piece::Bytes(b"data: [DONE]\n\n".to_vec());
                usage.into_iter().chain([done]).collect()
            }
        }
    }
}

fn anthropic(usage: Usage) -> Value {
    json!({"input_tokens": usage.input, "output_tokens": usage.output,
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0})
}

fn responses(usage: Usage) -> Value {
    json!({"input_tokens": usage.input, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": usage.input + usage.output})
}

fn openai(usage: Usage) -> Value {
    json!({"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.input + usage.output})
}

fn named(event: &str, data: &Value) -> Piece {
    Piece::Bytes(format!("event: {event}\ndata: {data}\n\n").into_bytes())
}

fn whole(status: u16, body: &Value) -> Response {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    exactly(status, headers, vec![Piece::Bytes(body.to_string().into_bytes())])
}

fn refuse(anthropic: bool, status: u16, message: &str) -> Response {
    let kind = if status == 401 {
        "authentication_error"
    } else {
        "invalid_request_error"
    };
    if anthropic {
        whole(
            status,
            &json!({"type": "error", "error": {"type": kind, "message": message}}),
        )
    } else {
        whole(
            status,
            &json!({"error": {"message": message, "type": kind, "param": null, "code": null}}),
        )
    }
}
