//! A whole chat-completions server on the loopback, driven by a script. It refuses what the real ones refuse, and can
//! be made to fail in every way that they do.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A running server; it stops when dropped.
pub struct ChatServer {
    address: std::net::SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    key: Option<String>,
    script: Mutex<Script>,
    requests: Mutex<Vec<Recorded>>,
}

type Script = Box<dyn FnMut(&Recorded) -> Answer + Send>;

/// A request that reached the server.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub path: String,
    pub headers: HashMap<String, String>,
    pub body: Value,
}

impl Recorded {
    /// The last thing that was said to the model.
    pub fn last_words(&self) -> &str {
        let last = self.body["messages"]
            .as_array()
            .and_then(|messages| messages.last());
        last.and_then(|message| message["content"].as_str())
            .unwrap_or_default()
    }
}

impl ChatServer {
    /// A server that gives these answers, in order. Asked for more, it says so with 418, which no client retries.
    pub async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut answers: VecDeque<Answer> = answers.into_iter().collect();
        Self::serve(None, move |_| {
            let over = || Answer::error(418, "the script of the server is over");
            answers.pop_front().unwrap_or_else(over)
        })
        .await
    }

    /// A server that decides by the request, and wants this key where one is given.
    pub async fn serve(key: Option<&str>, script: impl FnMut(&Recorded) -> Answer + Send + 'static) -> Self {
        let shared = Arc::new(Shared {
            key: key.map(str::to_owned),
            script: Mutex::new(Box::new(script)),
            requests: Mutex::default(),
        });
        let routes = Router::new()
            .route("/v1/chat/completions", post(answer))
            .with_state(shared.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            address,
            shared,
            task,
        }
    }

    /// The address without a path.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything that was asked so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for ChatServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the server does with a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Answers as a model does, as a stream or in one body, whichever was asked for.
    Completion(Completion),
    /// Answers with exactly this.
    Exactly {
        status: u16,
        headers: Vec<(String, String)>,
        pieces: Vec<Piece>,
    },
    /// Takes the request and says nothing.
    Hang,
}

/// A model's answer.
#[derive(Clone, Debug)]
pub struct Completion {
    pub text: String,
    pub finish_reason: &'static str,
    pub usage: Option<Value>,
}

/// A piece of a body.
#[derive(Clone, Debug)]
pub enum Piece {
    /// These bytes, in a chunk of their own.
    Bytes(Vec<u8>),
    /// The connection is cut.
    Cut,
    /// Nothing comes for so long.
    Pause(Duration),
    /// Nothing more comes, and the connection stays.
    Hang,
}

impl Answer {
    /// A model's answer with some usage and without a cost.
    pub fn text(text: &str) -> Self {
        Self::Completion(Completion {
            text: text.to_owned(),
            finish_reason: "stop",
            usage: Some(json!({"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200})),
        })
    }

    /// A refusal in the usual shape.
    pub fn error(status: u16, message: &str) -> Self {
        let body = json!({"error": {"message": message, "type": "scripted", "code": status.to_string()}});
        Self::exactly(status, "application/json", body.to_string())
    }

    /// This body in one piece.
    pub fn exactly(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::Exactly {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            pieces: vec![Piece::Bytes(body.into())],
        }
    }

    /// A stream of these pieces.
    pub fn stream(pieces: impl IntoIterator<Item = Piece>) -> Self {
        Self::Exactly {
            status: 200,
            headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())],
            pieces: pieces.into_iter().collect(),
        }
    }

    /// The same with one more header.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        let Self::Exactly { headers, .. } = &mut self else {
            panic!("only an exact answer has headers of its own: {self:?}");
        };
        headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl Piece {
    /// One event of a stream.
    pub fn event(data: &Value) -> Self {
        Self::Bytes(format!("data: {data}\n\n").into_bytes())
    }

    /// One event that says a bit of text.
    pub fn delta(text: &str) -> Self {
        Self::event(&json!({"model": "m", "choices": [{"index": 0, "delta": {"content": text}}]}))
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    uri: axum::http::Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let recorded = Recorded {
        path: uri.path().to_owned(),
        headers: headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    shared.requests.lock().unwrap().push(recorded.clone());
    let answer = match objection(shared.key.as_deref(), &recorded) {
        Some(refusal) => refusal,
        None => (shared.script.lock().unwrap())(&recorded),
    };
    respond(answer, &recorded).await
}

/// What the real servers object to.
fn objection(key: Option<&str>, request: &Recorded) -> Option<Answer> {
    let bearer = request
        .headers
        .get("authorization")
        .and_then(|value| value.strip_prefix("Bearer "));
    if key.is_some() && bearer != key {
        return Some(Answer::error(401, "Incorrect API key provided"));
    }
    let body = &request.body;
    if !body.is_object() {
        return Some(Answer::error(400, "the body is not a JSON object"));
    }
    if !body["model"].is_string() {
        return Some(Answer::error(400, "you must provide a model parameter"));
    }
    let well_formed = |message: &Value| {
        let role = message["role"].as_str().unwrap_or_default();
        ["system", "user", "assistant"].contains(&role) && !message["content"].is_null()
    };
    match body["messages"].as_array() {
        Some(messages) if !messages.is_empty() && messages.iter().all(well_formed) => None,
        _ => Some(Answer::error(400, "messages: a list of messages is required")),
    }
}

async fn respond(answer: Answer, request: &Recorded) -> Response {
    match answer {
        Answer::Completion(completion) if request.body["stream"] == true => {
            let with_usage = request.body["stream_options"]["include_usage"] == true;
            exactly(
                200,
                vec![("content-type".into(), "text/event-stream".into())],
                completion.events(request, with_usage),
            )
        }
        Answer::Completion(completion) => {
            let body = completion.body(request).to_string().into_bytes();
            exactly(
                200,
                vec![("content-type".into(), "application/json".into())],
                vec![Piece::Bytes(body)],
            )
        }
        Answer::Exactly {
            status,
            headers,
            pieces,
        } => exactly(status, headers, pieces),
        Answer::Hang => std::future::pending().await,
    }
}

impl Completion {
    /// The text in pieces of three characters, the end, the usage where it was asked for, and `[DONE]`.
    fn events(&self, request: &Recorded, with_usage: bool) -> Vec<Piece> {
        let chunk = |choices: Value| json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": request.body["model"], "choices": choices});
        let characters: Vec<char> = self.text.chars().collect();
        let said = characters.chunks(3).map(|part| {
            let content: String = part.iter().collect();
            chunk(json!([{"index": 0, "delta": {"role": "assistant", "content": content}, "finish_reason": null}]))
        });
        let end = chunk(json!([{"index": 0, "delta": {}, "finish_reason": self.finish_reason}]));
        let usage = self.usage.as_ref().filter(|_| with_usage).map(|usage| {
            let mut chunk = chunk(json!([]));
            chunk["usage"] = usage.clone();
            chunk
        });
        let events = said.chain([end]).chain(usage).map(|event| Piece::event(&event));
        events
            .chain([Piece::Bytes(b"data: [DONE]\n\n".to_vec())])
            .collect()
    }

    fn body(&self, request: &Recorded) -> Value {
        json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": request.body["model"],
            "choices": [{"index": 0, "finish_reason": self.finish_reason, "message": {"role": "assistant", "content": self.text}}],
            "usage": self.usage,
        })
    }
}

/// An answer of these pieces.
pub fn exactly(status: u16, headers: Vec<(String, String)>, pieces: Vec<Piece>) -> Response {
    let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let body = futures_util::stream::unfold(VecDeque::from(pieces), |mut pieces| async {
        let piece = match pieces.pop_front()? {
            Piece::Bytes(bytes) => Ok(bytes),
            Piece::Cut => Err(io::Error::other("cut by the script")),
            Piece::Pause(time) => {
                tokio::time::sleep(time).await;
                Ok(Vec::new())
            }
            Piece::Hang => std::future::pending().await,
        };
        // So that each piece travels alone, and what came before a cut arrives.
        tokio::time::sleep(Duration::from_millis(1)).await;
        Some((piece, pieces))
    });
    response.body(Body::from_stream(body)).unwrap()
}
