//! A GitHub on the host: git over HTTP, by git's own `http-backend`, and a little of the API. Both want the token, each
//! in its own way.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tempfile::TempDir;

use crate::git_http::{GitRequest, git, header, make_repository};

/// The token that it wants. It must be seen nowhere else.
pub const TOKEN: &str = "github_pat_CANARY_0123456789abcdef";

/// The longest request; those of the tests are short.
const LARGEST: usize = 1 << 20;

/// A running server with the repositories `acme/widget` and `acme/secret`; it stops when dropped.
pub struct GitHubServer {
    pub url: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    dir: TempDir,
    requests: Mutex<Vec<String>>,
}

impl GitHubServer {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["widget", "secret"] {
            make_repository(&dir.path().join(format!("acme/{name}.git")));
        }
        let shared = Arc::new(Shared {
            dir,
            requests: Mutex::default(),
        });
        let routes = Router::new().fallback(answer).with_state(shared.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, shared, task }
    }

    /// What was asked for with the token so far: methods and paths.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// The branches of `acme/widget`.
    pub fn branches(&self) -> String {
        git(
            &self.shared.dir.path().join("acme/widget.git"),
            &["branch", "--list"],
            "",
        )
    }
}

impl Drop for GitHubServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, LARGEST).await.unwrap();
    let path = head.uri.path();
    let of_api = path.starts_with("/repos/");
    let expected = if of_api {
        format!("Bearer {TOKEN}")
    } else {
        let pair = format!("x-access-token:{TOKEN}");
        format!("Basic {}", BASE64_STANDARD.encode(pair))
    };
    if header(&head, "authorization") != expected {
        return refusal(StatusCode::UNAUTHORIZED);
    }
    let method = match header(&head, "x-http-method-override") {
        "" => head.method.as_str(),
        other => other,
    };
    shared.requests.lock().unwrap().push(format!("{method} {path}"));
    match path {
        "/repos/acme/widget" => {
            axum::Json(json!({"full_name": "acme/widget", "private": true})).into_response()
        }
        _ if of_api => refusal(StatusCode::NOT_FOUND),
        _ => {
            let request = GitRequest {
                root: shared.dir.path(),
                path,
                user: "acme",
                variables: Vec::new(),
            };
            request.answer(&head, &body).await
        }
    }
}

fn refusal(status: StatusCode) -> Response {
    Response::builder()
        .status(status)
        .header("www-authenticate", "Basic realm=\"GitHub\"")
        .body(Body::empty())
        .unwrap()
}
