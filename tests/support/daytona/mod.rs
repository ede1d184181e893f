//! A fake of Daytona on loopback: the control plane with its states and errors, a vault, and toolboxes whose sandboxes are
//! containers. Its types are those of the official `OpenAPI` documents, against which [`prism`] checks them, and the
//! official SDK can drive it. It behaves like the official daemon: lines of a log are marked, a terminal disconnects slow
//! readers, a stopped sandbox runs no commands.

mod container;
mod control;
mod fault;
mod files;
mod namespaces;
pub mod prism;
mod room;
mod session;
mod snapshot;
mod storage;
mod terminal;
mod toolbox;
mod vault;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use ralph::engine::Engine;
use ralph::sandbox::daytona::DaytonaOptions;
use ralph::secret::Secret;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub use self::fault::Fault;
use self::room::{Ground, Room};
use self::session::Session;
use self::storage::Store;
use self::terminal::Terminal;
use self::vault::Kept;

/// The only valid API key.
pub const KEY: &str = "dtn_5f0c2b9a77e1";

/// A running fake. It stops when dropped, and removes its sandboxes.
pub struct Daytona {
    address: SocketAddr,
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

/// The state that all requests share.
struct Shared {
    ground: Ground,
    /// The URL of toolboxes in responses.
    toolboxes: Mutex<String>,
    sandboxes: Mutex<HashMap<String, Remote>>,
    snapshots: Mutex<HashMap<String, Value>>,
    vault: Mutex<BTreeMap<String, Kept>>,
    sessions: Mutex<HashMap<String, Session>>,
    terminals: Mutex<HashMap<String, Terminal>>,
    faults: Mutex<Vec<(String, Fault)>>,
    calls: Mutex<Vec<(String, Value)>>,
    store: Store,
    /// The requests to the object store.
    uploads: Mutex<Vec<String>>,
    tier: Mutex<Tier>,
    broken: Notify,
}

/// The tier of an organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// It can set the network policy of its sandboxes.
    High,
    /// It cannot.
    Low,
}

/// One sandbox.
#[derive(Clone)]
struct Remote {
    json: Value,
    room: Room,
    /// How many polls it takes to reach its next state.
    looks_left: u32,
}

impl Daytona {
    /// What it gives away for its object store: access key, secret and session token.
    pub const STORAGE_CREDENTIALS: [&str; 3] = storage::CREDENTIALS;

    /// A fake whose sandboxes are containers of this engine.
    pub async fn start(engine: Engine) -> Self {
        Self::on(Ground::Engine(Box::new(engine))).await
    }

    /// A fake whose sandboxes are namespaces of the host, which hold hundreds of them. Their files are lost at a stop. The
    /// error says why namespaces are impossible.
    pub async fn in_namespaces() -> Result<Self, String> {
        let ground = Ground::Namespaces;
        ground.room("", &[]).await?.remove_now();
        Ok(Self::on(ground).await)
    }

    async fn on(ground: Ground) -> Self {
        let shared = Arc::new(Shared {
            ground,
            toolboxes: Mutex::default(),
            vault: Mutex::default(),
            sandboxes: Mutex::default(),
            snapshots: Mutex::default(),
            sessions: Mutex::default(),
            terminals: Mutex::default(),
            faults: Mutex::default(),
            calls: Mutex::default(),
            store: Store::default(),
            uploads: Mutex::default(),
            tier: Mutex::new(Tier::High),
            broken: Notify::new(),
        });
        let routes = Router::new()
            .merge(control::routes())
            .merge(snapshot::routes())
            .merge(storage::routes())
            .merge(vault::routes())
            .merge(toolbox::routes())
            .fallback(|| async { Refusal(404, "Cannot find that".to_owned()) })
            .layer(axum::extract::DefaultBodyLimit::disable())
            .layer(middleware::from_fn_with_state(shared.clone(), guard))
            .with_state(shared.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        *shared.toolboxes.lock().unwrap() = format!("http://{address}/toolbox");
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let store = storage::serve(shared.clone()).await;
        Self {
            address,
            shared,
            tasks: [task, store],
        }
    }

    /// The options of a provider for this fake.
    pub fn options(&self) -> DaytonaOptions {
        DaytonaOptions::new(
            self.api_url(),
            Some(Secret::new(KEY)),
            "test",
            ralph::clock::system(),
        )
    }

    /// The URL of its control plane.
    pub fn api_url(&self) -> String {
        format!("{}/api", self.url())
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Fails the next request whose method and path contain this text, once for each fault, in order.
    pub fn fail(&self, requests: &str, faults: impl IntoIterator<Item = Fault>) {
        let faults = faults.into_iter().map(|fault| (requests.to_owned(), fault));
        self.shared.faults.lock().unwrap().extend(faults);
    }

    /// Removes all faults.
    pub fn forget_faults(&self) {
        self.shared.faults.lock().unwrap().clear();
    }

    /// Sets the URL of toolboxes, for a proxy in between.
    pub fn say_toolboxes_are_at(&self, url: &str) {
        url.clone_into(&mut self.shared.toolboxes.lock().unwrap());
    }

    /// The names of the credentials in the vault.
    pub fn vault(&self) -> Vec<String> {
        let vault = self.shared.vault.lock().unwrap();
        vault.values().map(Kept::name).collect()
    }

    /// Sets the tier of the organisation.
    pub fn set_tier(&self, tier: Tier) {
        *self.shared.tier.lock().unwrap() = tier;
    }

    /// The bodies of the requests whose method and path contain this text.
    pub fn asked(&self, requests: &str) -> Vec<Value> {
        let calls = self.shared.calls.lock().unwrap();
        let meant = calls.iter().filter(|(name, _)| name.contains(requests));
        meant.map(|(_, body)| body.clone()).collect()
    }

    /// The requests that reached the object store: method and path.
    pub fn uploads(&self) -> Vec<String> {
        self.shared.uploads.lock().unwrap().clone()
    }

    /// How many objects the object store holds.
    pub fn stored(&self) -> usize {
        self.shared.store.len()
    }

    /// The names of all sandboxes.
    pub fn sandboxes(&self) -> Vec<String> {
        let sandboxes = self.shared.sandboxes.lock().unwrap();
        let names = sandboxes
            .values()
            .map(|one| one.json["name"].as_str().unwrap().to_owned());
        names.collect()
    }

    /// The names of all snapshots.
    pub fn snapshots(&self) -> Vec<String> {
        let snapshots = self.shared.snapshots.lock().unwrap();
        let mut names: Vec<String> = snapshots
            .iter()
            .filter(|(_, one)| one["state"] != "removing")
            .map(|(name, _)| name.clone())
            .collect();
        names.sort();
        names
    }

    /// Adds or changes a snapshot, as someone else may do.
    pub fn put_snapshot(&self, name: &str, fields: &Value) {
        let mut snapshots = self.shared.snapshots.lock().unwrap();
        let snapshot = snapshots.entry(name.to_owned()).or_insert_with(|| {
            json!({
                "id": format!("{:032x}", fastrand::u128(..)), "general": false, "name": name,
                "imageName": "team/image:1", "state": "active", "errorReason": null, "size": 0.2, "entrypoint": [],
                "cpu": 1, "gpu": 0, "mem": 1, "disk": 3, "createdAt": control::NOW, "updatedAt": control::NOW,
                "lastUsedAt": null, "sourceSandboxId": null,
            })
        });
        for (field, value) in fields.as_object().unwrap() {
            snapshot[field] = value.clone();
        }
    }

    /// The output of a script in a sandbox.
    pub async fn script(&self, name: &str, script: &str) -> String {
        let room = self.named(name, |one| one.room.clone());
        let ended = room.script(script, &[], b"").await;
        String::from_utf8_lossy(&ended.output).into_owned()
    }

    /// Removes a sandbox, as Daytona may do.
    pub async fn lose(&self, name: &str) {
        let id = self.named(name, |one| one.json["id"].as_str().unwrap().to_owned());
        let lost = self.shared.sandboxes.lock().unwrap().remove(&id);
        lost.unwrap().room.remove().await;
    }

    /// Stops a sandbox, as Daytona does with an idle one.
    pub async fn stop_for_being_idle(&self, name: &str) {
        self.named(name, |one| one.room.clone()).stop().await;
        self.set_state(name, "stopped");
    }

    /// Breaks the connections of all terminals.
    pub fn break_terminals(&self) {
        self.shared.broken.notify_waiters();
    }

    fn named<T>(&self, name: &str, look: impl FnOnce(&Remote) -> T) -> T {
        let sandboxes = self.shared.sandboxes.lock().unwrap();
        look(sandboxes.values().find(|one| one.json["name"] == name).unwrap())
    }

    /// Sets the state of a sandbox, as Daytona may do.
    pub fn set_state(&self, name: &str, state: &str) {
        let mut sandboxes = self.shared.sandboxes.lock().unwrap();
        let one = sandboxes
            .values_mut()
            .find(|one| one.json["name"] == name)
            .unwrap();
        one.json["state"] = json!(state);
        one.looks_left = u32::MAX;
    }
}

impl Drop for Daytona {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        for remote in self.shared.sandboxes.lock().unwrap().values() {
            remote.room.remove_now();
        }
    }
}

/// An error response in Daytona's format.
struct Refusal(u16, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0).unwrap();
        let body = json!({
            "path": "/", "timestamp": "2026-11-15T00:00:00.000Z", "statusCode": self.0,
            "error": status.canonical_reason(), "message": self.1,
        });
        (status, Json(body)).into_response()
    }
}

/// Checks the key, records the request, and injects faults.
async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let name = format!("{} {}", request.method(), request.uri().path());
    if !is_known(request.headers()) {
        return Refusal(401, "Unauthorized".to_owned()).into_response();
    }
    let fault = shared.take_fault(&name);
    if let Some(fault) = &fault
        && let Some(response) = fault.instead_of_an_answer().await
    {
        return response;
    }
    let (request, body) = fault::recorded(request).await;
    shared.calls.lock().unwrap().push((name, body));
    let response = next.run(request).await;
    match fault {
        Some(fault) => fault.instead_of(response).await,
        None => response,
    }
}

fn is_known(headers: &HeaderMap) -> bool {
    let expected = format!("Bearer {KEY}");
    headers
        .get("authorization")
        .is_some_and(|given| given.as_bytes() == expected.as_bytes())
}

impl Shared {
    fn take_fault(&self, name: &str) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap();
        let at = faults
            .iter()
            .position(|(requests, _)| name.contains(requests.as_str()))?;
        Some(faults.remove(at).1)
    }

    /// Whether the log or terminal that is being opened must break.
    fn breaks_off(&self, what: &str) -> bool {
        let mut faults = self.faults.lock().unwrap();
        let at = faults
            .iter()
            .position(|(requests, fault)| requests == what && *fault == Fault::BreaksOff);
        at.map(|at| faults.remove(at)).is_some()
    }

    /// The room of a running sandbox.
    fn room(&self, id: &str) -> Result<Room, Refusal> {
        let sandboxes = self.sandboxes.lock().unwrap();
        let Some(found) = sandboxes.get(id) else {
            return Err(Refusal(404, format!("sandbox {id} not found")));
        };
        match found.json["state"].as_str() {
            Some("started") => Ok(found.room.clone()),
            _ => Err(Refusal(400, "sandbox is not running".to_owned())),
        }
    }
}
