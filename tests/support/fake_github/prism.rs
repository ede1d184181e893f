//! Prism between the client and the API.

use std::path::PathBuf;
use std::process::Child;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Response;
use axum::http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use serde_json::Value;
use tempfile::TempDir;

use super::{Asked, contract};
use crate::daytona::prism::{VERDICT, judge};

/// How long Prism may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// A running Prism, and what it found.
pub(super) struct Judge {
    url: String,
    client: reqwest::Client,
    violations: Mutex<Vec<String>>,
    process: Mutex<Child>,
    _document: TempDir,
}

impl Judge {
    /// Starts Prism in front of an address, and waits until it answers.
    pub(super) fn start(upstream: &str) -> Result<Self, String> {
        let program = std::env::var_os("RALPH_TEST_PRISM")
            .map(PathBuf::from)
            .ok_or("RALPH_TEST_PRISM names no Prism; tests/run installs one")?;
        let document = TempDir::new().unwrap();
        let path = document.path().join("github.json");
        std::fs::write(&path, contract::document().to_string()).unwrap();
        let (process, port) = judge(&program, &path, upstream);
        let started = Self {
            url: format!("http://127.0.0.1:{port}"),
            client: reqwest::Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                // Prism closes idle connections, perhaps just as the next request comes.
                .pool_max_idle_per_host(0)
                .build()
                .unwrap(),
            violations: Mutex::default(),
            process: Mutex::new(process),
            _document: document,
        };
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if begun.elapsed() > START_TIMEOUT {
                return Err("Prism does not begin".to_owned());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(started)
    }

    /// Ends Prism. Doing so twice is harmless.
    pub(super) fn stop(&self) {
        let mut process = self.process.lock().unwrap();
        let _ = process.kill();
        let _ = process.wait();
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    /// Asks through Prism, and keeps what it finds wrong.
    pub(super) async fn ask(&self, asked: &Asked) -> Response<Body> {
        let head = &asked.head;
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut headers = head.headers.clone();
        for name in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            headers.remove(name);
        }
        let request = self
            .client
            .request(head.method.clone(), format!("{}{target}", self.url));
        let answer = request
            .headers(headers)
            .body(asked.body.clone())
            .send()
            .await
            .unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.bytes().await.unwrap();
        let call = format!("{} {target}", head.method);
        // Prism only warns of errors that the document does not list; those it says of a success are ours.
        if let Some(warnings) = headers.get("sl-violations").filter(|_| status.is_success()) {
            self.violations
                .lock()
                .unwrap()
                .push(format!("{call}: {warnings:?}"));
        }
        self.note(&call, &body);
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        for (name, value) in &headers {
            if ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) {
                response.headers_mut().append(name, value.clone());
            }
        }
        response
    }

    fn note(&self, call: &str, body: &[u8]) {
        let verdict = serde_json::from_slice::<Value>(body).unwrap_or_default();
        let kind = verdict["type"].as_str().unwrap_or_default();
        if kind.starts_with(VERDICT) {
            self.violations.lock().unwrap().push(format!("{call}: {verdict}"));
        }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.stop();
    }
}
