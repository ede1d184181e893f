//! Whole model servers for the agent programs, on real sockets, driven by a script.

mod chat;
mod generate_content;
mod messages;
mod responses;
mod turns;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

#[allow(unused_imports, reason = "not every test binary writes a script")]
pub use turns::{Asked, Teller, Turn};

/// Which API a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Anthropic's, which `claude` speaks.
    Messages,
    /// OpenAI's, which `codex` speaks.
    Responses,
    /// Chat completions, which `opencode` speaks.
    Chat,
    /// Google's, which `gemini` speaks.
    GenerateContent,
}

impl Api {
    fn path(self) -> &'static str {
        match self {
            Self::Messages => "/v1/messages",
            Self::Responses => "/v1/responses",
            Self::Chat => "/v1/chat/completions",
            Self::GenerateContent => "/v1beta/models/{call}",
        }
    }

    /// The tokens, in and out, that each turn uses.
    pub fn tokens(self) -> u64 {
        let out = match self {
            Self::Messages => messages::TOKENS_OUT,
            Self::Responses => responses::TOKENS_OUT,
            Self::Chat => chat::TOKENS_OUT,
            Self::GenerateContent => generate_content::TOKENS_OUT,
        };
        self.tokens_in() + out
    }

    fn tokens_in(self) -> u64 {
        match self {
            Self::Messages => messages::TOKENS_IN,
            Self::Responses => responses::TOKENS_IN,
            Self::Chat => chat::TOKENS_IN,
            Self::GenerateContent => generate_content::TOKENS_IN,
        }
    }
}

/// A running server; it stops when dropped.
pub struct ModelServer {
    api: Api,
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    api: Api,
    key: String,
    teller: Teller,
    /// The tokens in that each turn uses.
    tokens_in: AtomicU64,
    renewals: AtomicU32,
}

impl ModelServer {
    /// A server on the loopback that wants this key.
    pub async fn start(api: Api, key: &str, teller: Teller) -> Self {
        Self::listen(Ipv4Addr::LOCALHOST.into(), api, key, teller).await
    }

    /// A server on this address.
    pub async fn listen(address: IpAddr, api: Api, key: &str, teller: Teller) -> Self {
        let shared = Arc::new(Shared {
            api,
            key: key.to_owned(),
            teller,
            tokens_in: AtomicU64::new(api.tokens_in()),
            renewals: AtomicU32::new(0),
        });
        let routes = Router::new()
            .route(api.path(), post(answer))
            .route("/v1/oauth/token", post(renew))
            .route("/v1/models", get(models))
            .route("/v1beta/models", get(models))
            .layer(axum::extract::DefaultBodyLimit::max(64 << 20))
            .with_state(shared.clone());
        let listener = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            api,
            address,
            shared,
            task,
        }
    }

    /// The address as the program of this API takes it.
    pub fn base_url(&self) -> String {
        match self.api {
            Api::Messages | Api::GenerateContent => format!("http://{}", self.address),
            Api::Responses | Api::Chat => format!("http://{}/v1", self.address),
        }
    }

    /// The address at which logins are renewed.
    pub fn token_url(&self) -> String {
        format!("http://{}/v1/oauth/token", self.address)
    }

    /// Has each turn use so many tokens in from now on.
    pub fn use_tokens(&self, tokens_in: u64) {
        self.shared.tokens_in.store(tokens_in, Ordering::Relaxed);
    }

    /// How often a login was renewed, to the key that the server wants.
    pub fn renewals(&self) -> u32 {
        self.shared.renewals.load(Ordering::Relaxed)
    }

    /// Everything that was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.teller.asked()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let response = match shared.api {
        Api::Messages => messages::respond(&shared, &headers, &body),
        Api::Responses => responses::respond(&shared, &headers, &body),
        Api::Chat => chat::respond(&shared, &headers, &body),
        Api::GenerateContent => generate_content::respond(&shared, &headers, &body),
    };
    match response {
        Some(response) => response,
        None => std::future::pending().await,
    }
}

/// What a login is renewed to beside the key.
pub const RENEWED_REFRESH: &str = "sk-ant-ort01-RENEWED-0123456789";

async fn renew(State(shared): State<Arc<Shared>>) -> axum::Json<Value> {
    shared.renewals.fetch_add(1, Ordering::Relaxed);
    axum::Json(json!({"access_token": shared.key, "refresh_token": RENEWED_REFRESH, "expires_in": 28_800}))
}

/// The list of models, for a client with the key.
async fn models(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if shows_key(&shared.key, &headers) {
        turns::json_body(200, &[], &json!({"data": [], "has_more": false}))
    } else {
        turns::json_body(401, &[], &json!({"error": {"message": "invalid key"}}))
    }
}

/// Whether a request has the key, in either of the headers that programs use.
fn shows_key(key: &str, headers: &HeaderMap) -> bool {
    let bearer = header(headers, "authorization").trim_start_matches("Bearer ");
    [
        header(headers, "x-api-key"),
        header(headers, "x-goog-api-key"),
        bearer,
    ]
    .contains(&key)
}

/// The text of a header; empty when it is not there.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name);
    value.and_then(|value| value.to_str().ok()).unwrap_or_default()
}
