//! A stateful GitHub for tests: the REST API, git over HTTP, Apps, and what the real one refuses.
//!
//! It is a whole program on real sockets, with a runtime of its own, so that tests may block. Both the API and git are below
//! [`FakeGitHub::url`]: `URL/repos/acme/widget` and `URL/acme/widget.git`. Branches of the API are those of real repositories.
//! What an answer looks like comes from GitHub's own document (`contract`), and [`FakeGitHub::start_validated`] puts Prism in
//! between, which checks every request and answer against it. A reference with a slash must then be encoded (`heads%2Fmain`).
//!
//! Differences from the real one: a refused push says why in `remote:` lines only; there are no forks; GraphQL has one
//! mutation and one query; stacks are there only where a test enables them (else 404).

mod api;
pub mod auth;
mod blobs;
mod contract;
mod control;
mod fault;
mod git;
mod limits;
mod people;
mod prism;
mod record;
mod reply;
mod world;

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use axum::body::{Body, Bytes, to_bytes};
use axum::http::request::Parts;
use axum::http::{Request, Response};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub use control::{AppKey, PullView};
pub use fault::{Fault, Lag};
pub use limits::LimitSettings;
use prism::Judge;
use world::World;
pub use world::{Comment, JobLog, Protection, Recorded, Role};

/// The longest request body.
const LARGEST: usize = 256 << 20;

/// A running GitHub; it stops when dropped.
pub struct FakeGitHub {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

/// What its requests share.
struct Shared {
    /// The repositories, each in a directory named after its number.
    dir: TempDir,
    /// The address that clients use, and the one of the logs.
    url: String,
    blob_url: String,
    world: Mutex<World>,
    judge: OnceLock<Judge>,
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl FakeGitHub {
    /// Starts it without repositories and users.
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_all()
            .build()
            .unwrap();
        let (outer, url) = listen();
        let (blobs, blob_url) = listen();
        let shared = Arc::new(Shared {
            dir: tempfile::tempdir().unwrap(),
            url,
            blob_url,
            world: Mutex::default(),
            judge: OnceLock::new(),
        });
        runtime.spawn(serve(outer, shared.clone(), record::answer));
        runtime.spawn(serve(blobs, shared.clone(), blobs::answer));
        Self {
            shared,
            runtime: Some(runtime),
        }
    }

    /// Like [`FakeGitHub::start`], with Prism between the client and the API. The error says why there is no Prism.
    pub fn start_validated() -> Result<Self, String> {
        let github = Self::start();
        let (inner, inner_url) = listen();
        let judge = Judge::start(&inner_url)?;
        let runtime = github.runtime.as_ref().expect("it was just started");
        runtime.spawn(serve(inner, github.shared.clone(), record::answer_judged));
        github.shared.judge.get_or_init(|| judge);
        Ok(github)
    }

    /// The address of the API and of git.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// The address of a repository for git. It has no credential.
    pub fn git_url(&self, repo: &str) -> String {
        format!("{}/{repo}.git", self.url())
    }

    /// What Prism found wrong; empty when nothing is, or without Prism.
    pub fn violations(&self) -> Vec<String> {
        self.shared.judge.get().map(Judge::violations).unwrap_or_default()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world()
    }
}

impl Drop for FakeGitHub {
    fn drop(&mut self) {
        // The last request may hold what is shared a little longer, and the process of the test may end before.
        if let Some(judge) = self.shared.judge.get() {
            judge.stop();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A listener on the loopback, and its address.
fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// A whole request.
struct Asked {
    head: Parts,
    body: Bytes,
}

/// Answers all connections. An error of the handler closes the connection without an answer.
async fn serve<H, F>(listener: TcpListener, shared: Arc<Shared>, handler: H)
where
    H: Fn(Arc<Shared>, Asked) -> F + Copy + Send + Sync + 'static,
    F: Future<Output = io::Result<Response<Body>>> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let shared = shared.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = to_bytes(Body::new(body), LARGEST)
                    .await
                    .map_err(io::Error::other)?;
                handler(shared, Asked { head, body }).await
            }
        });
        tokio::spawn(async move {
            // Clients may leave at any time, and some requests are dropped on purpose.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
