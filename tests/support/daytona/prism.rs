//! Prism between a client and the fake: it checks all requests and responses against Daytona's `OpenAPI` documents.
//!
//! Prism treats all bodies as text and has no WebSockets. So a download goes through Prism and also directly, for its bytes,
//! and a WebSocket goes directly only. So does an upload: Daytona's document does not describe its form, which Prism rejects;
//! the official SDK shows that it is right.

use std::fmt::Write;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use flate2::read::GzDecoder;
use hyper_util::rt::TokioIo;
use ralph::sandbox::daytona::DaytonaOptions;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::Daytona;

const DOCUMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/daytona");
/// The prefix of the error types in Prism's own responses.
pub(crate) const VERDICT: &str = "https://stoplight.io/prism/errors";
/// How long Prism may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST: usize = 1 << 30;

/// One Prism for each document, and a front that selects one. They end when this is dropped.
pub struct Prism {
    address: SocketAddr,
    front: Arc<Front>,
    task: JoinHandle<()>,
    judges: Vec<Child>,
    _documents: TempDir,
}

struct Front {
    client: reqwest::Client,
    /// The fake itself.
    daytona: String,
    /// The ports of the Prisms for the control plane and for toolboxes.
    control: String,
    toolboxes: String,
    violations: Mutex<Vec<String>>,
    /// How many calls were checked, and how many went to the fake directly.
    judged: AtomicUsize,
    straight: AtomicUsize,
}

impl Prism {
    /// Starts Prism in front of a fake. The error says why that failed.
    pub async fn before(daytona: &Daytona) -> Result<Self, String> {
        let program = std::env::var_os("RALPH_TEST_PRISM")
            .map(PathBuf::from)
            .ok_or("RALPH_TEST_PRISM names no Prism; tests/run installs one")?;
        let documents = TempDir::new().unwrap();
        let written = [
            ("api.json", document("api.json")),
            ("toolbox.json", of_one_sandbox()),
        ];
        let [control, toolboxes] = written.map(|(name, document)| {
            let path = documents.path().join(name);
            std::fs::write(&path, document.to_string()).unwrap();
            path
        });
        let (control, control_port) = judge(&program, &control, &daytona.api_url());
        let (toolboxes, toolboxes_port) = judge(&program, &toolboxes, &daytona.url());
        let (judges, ports) = (vec![control, toolboxes], [control_port, toolboxes_port]);
        let [control, toolboxes] = ports.map(|port| format!("http://127.0.0.1:{port}"));
        let front = Arc::new(Front {
            client: client(),
            daytona: daytona.url(),
            control,
            toolboxes,
            violations: Mutex::default(),
            judged: AtomicUsize::default(),
            straight: AtomicUsize::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().fallback(pass_on).with_state(front.clone());
        let prism = Self {
            address,
            front,
            task: tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() }),
            judges,
            _documents: documents,
        };
        for port in ports {
            prism.answers(port).await?;
        }
        daytona.say_toolboxes_are_at(&format!("http://{address}/toolbox"));
        Ok(prism)
    }

    /// The options of a provider that goes through Prism.
    pub fn options(&self, daytona: &Daytona) -> DaytonaOptions {
        DaytonaOptions {
            api_url: format!("http://{}/api", self.address),
            ..daytona.options()
        }
    }

    /// The violations that Prism found, and calls that it did not check.
    pub fn complaints(&self, daytona: &Daytona) -> Vec<String> {
        let mut complaints = self.front.violations.lock().unwrap().clone();
        let [judged, straight] =
            [&self.front.judged, &self.front.straight].map(|calls| calls.load(Ordering::SeqCst));
        let answered = daytona.asked("").len();
        if judged == 0 {
            complaints.push("no call was judged".to_owned());
        }
        if answered > judged + straight {
            complaints.push(format!(
                "only {judged} calls of {} were judged",
                answered - straight
            ));
        }
        complaints
    }

    async fn answers(&self, port: u16) -> Result<(), String> {
        let begun = std::time::Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if begun.elapsed() > START_TIMEOUT {
                return Err("Prism does not begin".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

impl Drop for Prism {
    fn drop(&mut self) {
        self.task.abort();
        for judge in &mut self.judges {
            let _ = judge.kill();
            let _ = judge.wait();
        }
    }
}

/// Starts a Prism for a document in front of an upstream; returns its port.
pub(crate) fn judge(program: &Path, document: &Path, upstream: &str) -> (Child, u16) {
    let port = free_port();
    let mut command = Command::new(program);
    // No one reads its log of every call, and writing it takes time.
    command.args(["proxy", "--errors", "--verboseLevel", "silent"]);
    command.args(["--host", "127.0.0.1", "--port"]);
    command.arg(port.to_string()).arg(document).arg(upstream);
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    (command.spawn().unwrap(), port)
}

/// One of Daytona's documents.
fn document(name: &str) -> Value {
    let file = File::open(format!("{DOCUMENTS}/{name}.gz")).unwrap();
    serde_json::from_reader(GzDecoder::new(file)).unwrap()
}

/// The document of toolboxes, with the sandbox before each path.
fn of_one_sandbox() -> Value {
    let mut document = document("toolbox.json");
    let sandbox = json!({ "name": "sandboxId", "in": "path", "required": true, "type": "string" });
    let paths = document["paths"].as_object().unwrap().clone();
    let below = paths.into_iter().map(|(path, mut calls)| {
        calls["parameters"] = json!([sandbox]);
        (format!("/toolbox/{{sandboxId}}{path}"), calls)
    });
    document["paths"] = Value::Object(below.collect());
    document
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A client that does not reuse connections: Prism closes idle ones, perhaps just as the next request comes.
fn client() -> reqwest::Client {
    let client = reqwest::Client::builder().no_proxy();
    client.pool_max_idle_per_host(0).build().unwrap()
}

async fn pass_on(State(front): State<Arc<Front>>, request: Request) -> Response {
    if request.headers().contains_key(UPGRADE) {
        return front.stream(request).await;
    }
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().unwrap().as_str().to_owned();
    let body = to_bytes(body, LONGEST).await.unwrap();
    let call = (&parts.method, &parts.headers, &body);
    if parts.uri.path().ends_with("/files/bulk-upload") {
        return front.ask_straight(&target, call).await.map(Body::from);
    }
    let judged = front.ask_judge(&target, call).await;
    if parts.uri.path().ends_with("/files/download") && judged.status().is_success() {
        return front.ask_straight(&target, call).await.map(Body::from);
    }
    judged.map(Body::from)
}

/// A request: method, headers and body.
type Asked<'a> = (&'a Method, &'a HeaderMap, &'a Bytes);
type Answer = axum::http::Response<Bytes>;

impl Front {
    async fn ask_straight(&self, target: &str, call: Asked<'_>) -> Answer {
        self.straight.fetch_add(1, Ordering::SeqCst);
        self.ask(&format!("{}{target}", self.daytona), call).await
    }

    async fn ask_judge(&self, target: &str, call: Asked<'_>) -> Answer {
        self.judged.fetch_add(1, Ordering::SeqCst);
        let judge = match target.strip_prefix("/api") {
            Some(path) => format!("{}{path}", self.control),
            None => format!("{}{target}", self.toolboxes),
        };
        let answer = self.ask(&judge, call).await;
        self.note(call.0, target, answer.body());
        answer
    }

    async fn ask(&self, url: &str, (method, headers, body): Asked<'_>) -> Answer {
        let mut headers = headers.clone();
        for name in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            headers.remove(name);
        }
        let request = self.client.request(method.clone(), url).headers(headers);
        let answer = request.body(body.clone()).send().await.unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        let mut response = Answer::new(answer.bytes().await.unwrap());
        *response.status_mut() = status;
        for (name, value) in &headers {
            if ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) {
                response.headers_mut().append(name, value.clone());
            }
        }
        response
    }

    fn note(&self, method: &Method, target: &str, answer: &Bytes) {
        let verdict = serde_json::from_slice::<Value>(answer).unwrap_or_default();
        let kind = verdict["type"].as_str().unwrap_or_default();
        if kind.starts_with(VERDICT) {
            self.violations
                .lock()
                .unwrap()
                .push(format!("{method} {target}: {verdict}"));
        }
    }

    /// Opens a WebSocket to the fake and forwards it.
    async fn stream(&self, mut request: Request) -> Response {
        self.straight.fetch_add(1, Ordering::SeqCst);
        let address = self.daytona.trim_start_matches("http://");
        let mut there = TcpStream::connect(address).await.unwrap();
        let target = request.uri().path_and_query().unwrap();
        let mut head = format!("{} {target} HTTP/1.1\r\n", request.method());
        for (name, value) in request.headers() {
            write!(head, "{name}: {}\r\n", value.to_str().unwrap()).unwrap();
        }
        there.write_all((head + "\r\n").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(there.read_u8().await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        let mut lines = answer.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap();
        let mut response = Response::builder().status(status);
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap();
            response = response.header(name, value.trim());
        }
        if status == StatusCode::SWITCHING_PROTOCOLS.as_str() {
            let here = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut here = TokioIo::new(here.await.unwrap());
                let _ = copy_bidirectional(&mut here, &mut there).await;
            });
        }
        response.body(Body::empty()).unwrap()
    }
}
