//! Engines whose sockets cannot be handed to the host.

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
    for policy in [allowlist(), Policy::deny()] {
        let desktop = Desktop::start();
        let refused = desktop.create(policy, SealChoice::Handed).await;
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
}

#[tokio::test]
async fn on_docker_desktop_connections_are_relayed() {
    for (policy, seal) in [
        (allowlist(), SealChoice::Auto),
        (Policy::deny(), SealChoice::Auto),
        (Policy::deny(), SealChoice::Relayed),
    ] {
        let desktop = Desktop::start();
        // The fake makes nothing, but it was asked to.
        desktop.create(policy, seal).await;
        let made = desktop.made();
        assert_eq!(made.len(), 1, "{made:?}");
        expect_relayed(&made[0]);
    }
}

fn expect_relayed(holder: &Value) {
    assert_eq!(holder["Entrypoint"], json!(["/.ralph/guest", "hold"]));
    let settings = &holder["HostConfig"];
    assert_eq!(settings["NetworkMode"], "none");
    assert_eq!(settings["Init"], false);
    // No directory of the host, and the guest for the sandbox.
    assert_eq!(
        settings["Mounts"],
        json!([{ "Type": "volume", "Target": "/.ralph" }])
    );
}

#[tokio::test]
async fn connections_are_relayed_where_no_container_prints_its_boot_id() {
    let own = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let engine = Desktop::answering(Answers {
        kernel: own.trim().to_owned(),
        ..Answers::default()
    });
    engine.create(allowlist(), SealChoice::Auto).await;
    let made = engine.made();
    assert_eq!(made.len(), 2, "{made:?}");
    assert_eq!(made[0]["Entrypoint"], json!(["/.ralph/guest", "boot-id"]));
    let labels = made[0]["Labels"].as_object().unwrap();
    assert_eq!((labels.len(), &labels["ralph.kernel"]), (2, &json!("")));
    let owner: serde_json::Value = serde_json::from_str(labels["ralph.owner"].as_str().unwrap()).unwrap();
    assert_eq!(owner["pid"], std::process::id());
    expect_relayed(&made[1]);
}

#[tokio::test]
async fn a_holder_with_the_processes_of_the_host_is_not_started() {
    let engine = Desktop::answering(Answers {
        holder_pids: Some("host"),
        ..Answers::default()
    });
    let refused = engine.create(allowlist(), SealChoice::Relayed).await;
    let source = refused.cause::<SealError>().expect("it is not sealed");
    assert!(
        matches!(source, SealError::SharedProcesses(whose) if whose == "host"),
        "{source:?}"
    );
}

fn allowlist() -> Policy {
    Policy::allowlist([PolicyRule::parse("allowed.test").unwrap()])
}

/// The architecture of the host, as engines name it.
const ARCH: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// An engine that says of itself what Docker Desktop says, and makes nothing.
struct Desktop {
    dir: TempDir,
    answers: Arc<Answers>,
}

struct Answers {
    /// The release of its kernel.
    kernel: String,
    /// The PID mode of the containers that it claims to have made; `None` if it makes none.
    holder_pids: Option<&'static str>,
    made: Mutex<Vec<Value>>,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            kernel: "6.10.14-linuxkit".to_owned(),
            holder_pids: None,
            made: Mutex::default(),
        }
    }
}

impl Desktop {
    fn start() -> Self {
        Self::answering(Answers::default())
    }

    fn answering(answers: Answers) -> Self {
        let desktop = Self {
            dir: TempDir::new().unwrap(),
            answers: Arc::new(answers),
        };
        let listener = UnixListener::bind(desktop.dir.path().join("socket")).unwrap();
        let router = Router::new().fallback(answer).with_state(desktop.answers.clone());
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
        self.answers.made.lock().unwrap().clone()
    }
}

async fn answer(State(answers): State<Arc<Answers>>, method: Method, uri: Uri, body: Bytes) -> Response {
    let path = uri.path();
    let path = path.strip_prefix("/v1.41").unwrap_or(path);
    match (method.as_str(), path) {
        ("GET", "/version") => Json(json!({
            "Version": "28.5.0", "ApiVersion": "1.41", "Os": "linux", "Arch": ARCH,
        })),
        ("GET", "/info") => Json(json!({
            "OperatingSystem": "Docker Desktop", "KernelVersion": answers.kernel, "NCPU": 2,
        })),
        ("GET", path) if path.starts_with("/images/") && path.ends_with("/json") => {
            Json(json!({ "Id": format!("sha256:{}", "0".repeat(64)) }))
        }
        ("GET", "/containers/json") => Json(json!([])),
        ("POST", "/containers/create") => {
            let mut made = answers.made.lock().unwrap();
            made.push(serde_json::from_slice(&body).unwrap());
            return match answers.holder_pids {
                Some(_) => (StatusCode::CREATED, Json(json!({ "Id": "1f", "Warnings": [] }))).into_response(),
                None => StatusCode::INSUFFICIENT_STORAGE.into_response(),
            };
        }
        ("GET", "/containers/1f/json") => Json(json!({
            "Id": "1f", "State": { "Status": "created" }, "HostConfig": { "PidMode": answers.holder_pids },
        })),
        ("DELETE", "/containers/1f") => return StatusCode::NO_CONTENT.into_response(),
        ("GET", path) if path.starts_with("/containers/") && path.ends_with("/json") => {
            let missing = Json(json!({ "message": "No such container" }));
            return (StatusCode::NOT_FOUND, missing).into_response();
        }
        other => panic!("unexpected request to Docker Desktop: {other:?}"),
    }
    .into_response()
}
