//! A broker on loopback, for one run, with a service of the test behind it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ralph::clock;
use ralph::credential::{CredentialKind, CredentialSource};
use ralph::gateway::Phantom;
use ralph::gateway::broker::{Broker, BrokerHandle, BrokerService, CallExceptions, ModelUpstream};
use ralph::gateway::meter::{Allowance, Meter, MeterNotice, MeterSetup, PriceList};
use ralph::secret::Secret;
use ralph::usage::{Price, Usd};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::model_service::{KEY, ModelService};

/// How long anything may take that a test waits for.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A dollar per million tokens, either way: a token costs a millionth.
pub fn price() -> Price {
    let dollar = usd(1.0);
    Price {
        input_per_million: dollar,
        output_per_million: dollar,
    }
}

pub fn usd(dollars: f64) -> Usd {
    Usd::from_dollars(dollars).unwrap()
}

pub struct World {
    pub meter: Meter,
    pub phantom: Phantom,
    pub address: SocketAddr,
    pub http: reqwest::Client,
    pub handle: BrokerHandle,
    notices: Arc<Mutex<Vec<MeterNotice>>>,
    dir: Arc<TempDir>,
    task: tokio::task::JoinHandle<()>,
}

impl World {
    /// A run without bounds whose calls go to this service with [`KEY`].
    pub async fn new(kind: CredentialKind, service: &ModelService) -> Self {
        Self::bounded(kind, service, Allowance::default()).await
    }

    pub async fn bounded(kind: CredentialKind, service: &ModelService, allowance: Allowance) -> Self {
        let source = CredentialSource::Fixed(Secret::new(KEY));
        let upstream = ModelUpstream::new(kind, source, Some(&service.base_url())).unwrap();
        Self::of(BrokerService::Model(upstream), allowance).await
    }

    pub async fn of(service: BrokerService, allowance: Allowance) -> Self {
        Self::with(service, allowance, CallExceptions::default()).await
    }

    /// A run whose calls may have what agents are not known to send.
    pub async fn with(service: BrokerService, allowance: Allowance, exceptions: CallExceptions) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        Self::open(dir, service, allowance, exceptions).await
    }

    /// A run that goes on with what another left in this directory.
    pub async fn in_dir(dir: Arc<TempDir>, service: BrokerService, allowance: Allowance) -> Self {
        Self::open(dir, service, allowance, CallExceptions::default()).await
    }

    async fn open(
        dir: Arc<TempDir>,
        service: BrokerService,
        allowance: Allowance,
        exceptions: CallExceptions,
    ) -> Self {
        let notices: Arc<Mutex<Vec<MeterNotice>>> = Arc::default();
        let meter = Meter::open(MeterSetup {
            file: dir.path().join("spending.jsonl"),
            allowance,
            prices: PriceList::new([("priced".to_owned(), price())]),
            sink: notices.clone(),
            clock: clock::system(),
        })
        .unwrap();
        let host = service.host().clone();
        let phantom = Phantom::random().unwrap();
        let broker = Broker::new([service], Vec::new()).unwrap();
        let handle = broker.register(phantom.clone(), meter.clone(), exceptions);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = handle.clone();
        let task = tokio::spawn(async move { serving.serve(listener, &host).await.unwrap() });
        Self {
            meter,
            phantom,
            address,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            handle,
            notices,
            dir,
            task,
        }
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("spending.jsonl")
    }

    /// The notices that the run received so far.
    pub fn notices(&self) -> Vec<MeterNotice> {
        self.notices.lock().unwrap().clone()
    }

    /// A call that shows nothing.
    pub fn bare(&self, path: &str, body: &Value) -> RequestBuilder {
        let call = self.http.post(format!("http://{}{path}", self.address));
        if path.starts_with("/v1/messages") {
            call.header("anthropic-version", "2023-06-01").json(body)
        } else {
            call.json(body)
        }
    }

    /// A call as `claude` with a key, or `codex`, makes one.
    pub fn call(&self, path: &str, body: &Value) -> RequestBuilder {
        let call = self.bare(path, body);
        if path.starts_with("/v1/messages") {
            call.header("x-api-key", self.phantom.expose())
        } else {
            call.bearer_auth(self.phantom.expose())
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A small call in each of the three languages.
pub fn body(path: &str, model: &str, stream: bool) -> Value {
    let words = json!([{"role": "user", "content": "hi"}]);
    match path {
        "/v1/responses" => {
            json!({"model": model, "max_output_tokens": 1000, "stream": stream, "input": words})
        }
        _ => json!({"model": model, "max_tokens": 1000, "stream": stream, "messages": words}),
    }
}
