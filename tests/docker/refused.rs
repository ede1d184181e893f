//! Engines whose sockets cannot be handed to this machine.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Json, Response};
use ralph::id::RunId;
use ralph::network::{Policy, PolicyRule};
use ralph::sandbox::docker::{SealChoice, SealError};
use ralph::sandbox::{Provider, SandboxError, SandboxSpec};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixListener;

use crate::support::engine;

#[tokio::test]
async fn docker_desktop_cannot_hand_over_sockets() {
    let desktop = Desktop::start();
    let refused = desktop.create(allowlist(), SealChoice::Handed).await;
    let source = refused.cause::<SealError>().expect("it is not sealed");
    assert!(matches!(source, SealError::OtherKernel), "{source:?}");
    assert!(source.to_string().contains("(in a virtual machine"), "{source}");
    assert!(
        refused
            .hint()
            .is_some_and(|hint| hint.contains("sandbox.docker.seal = \"auto\""))
    );
    assert_eq!(desktop.made(), [] as [Value; 0]);
    assert_eq!(crate::docker_test::sandbox_dirs(desktop.dir.path()), 0);
}

#[tokio::test]
async fn on_docker_desktop_connections_are_relayed() {
    for policy in [allowlist(), Policy::deny()] {
        let desktop = Desktop::start();
        // The fake makes nothing, but it was asked to.
        desktop.create(policy, SealChoice::Auto).await;
        let made = desktop.made();
        assert_eq!(made.len(), 1, "{made:?}");
        assert_eq!(made[0]["Entrypoint"], json!(["/.ralph/guest", "hold"]));
        let settings = &made[0]["HostConfig"];
        assert_eq!(settings["NetworkMode"], "none");
        // No directory of the host, and the guest for the sandbox.
        assert_eq!(
            settings["Mounts"],
            json!([{ "Type": "volume", "Target": "/.ralph" }])
        );
    }
}

fn allowlist() -> Policy {
    Policy::allowlist([PolicyRule::parse("allowed.test").unwrap()])
}

/// This machine's processor, as engines name it.
const ARCH: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// An engine that says of itself what Docker Desktop says, and makes nothing.
struct Desktop {
    dir: TempDir,
    made: Arc<Mutex<Vec<Value>>>,
}

impl Desktop {
    fn start() -> Self {
        let desktop = Self {
            dir: TempDir::new().unwrap(),
            made: Arc::default(),
        };
        let listener = UnixListener::bind(desktop.dir.path().join("socket")).unwrap();
        let router = Router::new().fallback(answer).with_state(desktop.made.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        desktop
    }

    /// Why no sandbox of this policy is made.
    async fn create(&self, network: Policy, seal: SealChoice) -> SandboxError {
        let mut options = engine::options(self.dir.path());
        options.seal = seal;
        let host = format!("unix://{}", self.dir.path().join("socket").display());
        options.engine.env.insert("DOCKER_HOST".to_owned(), host);
        let spec = SandboxSpec {
            image: Some("image:1".to_owned()),
            network,
            ..SandboxSpec::unrestricted(RunId::random())
        };
        let made = ralph::sandbox::docker::provider(options).create(&spec).await;
        made.map(drop).unwrap_err()
    }

    /// The containers that it was asked for.
    fn made(&self) -> Vec<Value> {
        self.made.lock().unwrap().clone()
    }
}

async fn answer(
    State(made): State<Arc<Mutex<Vec<Value>>>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let path = uri.path();
    let path = path.strip_prefix("/v1.41").unwrap_or(path);
    match (method.as_str(), path) {
        ("GET", "/version") => Json(json!({
            "Version": "28.5.0", "ApiVersion": "1.41", "Os": "linux", "Arch": ARCH,
        })),
        ("GET", "/info") => Json(json!({
            "OperatingSystem": "Docker Desktop", "KernelVersion": "6.10.14-linuxkit", "NCPU": 2,
        })),
        ("GET", path) if path.starts_with("/images/") && path.ends_with("/json") => {
            Json(json!({ "Id": format!("sha256:{}", "0".repeat(64)) }))
        }
        ("GET", "/containers/json") => Json(json!([])),
        ("POST", "/containers/create") => {
            made.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
            return StatusCode::INSUFFICIENT_STORAGE.into_response();
        }
        ("GET", path) if path.starts_with("/containers/") && path.ends_with("/json") => {
            let missing = Json(json!({ "message": "No such container" }));
            return (StatusCode::NOT_FOUND, missing).into_response();
        }
        other => panic!("nobody asks Docker Desktop for {other:?}"),
    }
    .into_response()
}
