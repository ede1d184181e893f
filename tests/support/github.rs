//! A GitHub of one machine: git over HTTP, by git's own `http-backend`, and a little of the API. Both want the token, each
//! in its own way.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

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

/// A bare repository with one commit on `main`.
fn make_repository(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "--quiet", "--bare", "--initial-branch=main"], "");
    git(dir, &["config", "http.receivepack", "true"], "");
    let file = git(dir, &["hash-object", "-w", "--stdin"], "A widget\n");
    let tree = git(dir, &["mktree"], &format!("100644 blob {file}\tREADME.md\n"));
    let commit = git(dir, &["commit-tree", "-m", "Begin", &tree], "");
    git(dir, &["update-ref", "refs/heads/main", &commit], "");
}

fn git(dir: &Path, args: &[&str], input: &str) -> String {
    use std::io::Write;
    let mut child = std::process::Command::new("git")
        .args(["-c", "user.name=acme", "-c", "user.email=acme@localhost"])
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "git {args:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
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
        _ => http_backend(&shared, &head, &body).await,
    }
}

/// The text of a header; empty when it is not there.
fn header<'a>(head: &'a Parts, name: &str) -> &'a str {
    let value = head.headers.get(name);
    value.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn refusal(status: StatusCode) -> Response {
    Response::builder()
        .status(status)
        .header("www-authenticate", "Basic realm=\"GitHub\"")
        .body(Body::empty())
        .unwrap()
}

/// Answers as a web server does that has git's own program behind it.
async fn http_backend(shared: &Shared, head: &Parts, body: &[u8]) -> Response {
    let mut child = tokio::process::Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", shared.dir.path())
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", head.method.as_str())
        .env("PATH_INFO", head.uri.path())
        .env("QUERY_STRING", head.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header(head, "content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header(head, "content-encoding"))
        .env("GIT_PROTOCOL", header(head, "git-protocol"))
        .env("REMOTE_USER", "acme")
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let writing = async {
        // It may have read enough.
        let _ = input.write_all(body).await;
        drop(input);
    };
    let (output, ()) = tokio::join!(child.wait_with_output(), writing);
    cgi_response(&output.unwrap().stdout)
}

fn cgi_response(output: &[u8]) -> Response {
    let end = output.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&output[..end]).unwrap();
    let mut response = Response::builder();
    for line in head.lines() {
        let (name, value) = line.split_once(": ").unwrap();
        response = match name {
            "Status" => response.status(value[..3].parse::<u16>().unwrap()),
            _ => response.header(name, value),
        };
    }
    response.body(Body::from(output[end + 4..].to_vec())).unwrap()
}
