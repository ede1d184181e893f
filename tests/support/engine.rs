//! The container engines that tests run against. `tests/run` starts those that do not answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use ralph::engine::{Engine, EngineEnvironment};
use ralph::exec::Host;
use ralph::sandbox::docker::{DockerOptions, SealChoice, WorkspaceChoice};

/// The engines there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that the `docker` command finds.
    Found,
    /// One that keeps its images in containerd, and has buildx.
    Containerd,
    Podman,
}

/// The engine that answers, or why the test cannot run.
pub async fn engine() -> Result<Engine, String> {
    connect(&surroundings()).await
}

/// One of the engines, or why the test cannot run. What the `docker` command keeps is kept in `docker_dir`.
pub async fn engine_of(which: Which, docker_dir: &Path) -> Result<Engine, String> {
    let variable = match which {
        Which::Found => return engine().await,
        Which::Containerd => "RALPH_TEST_CONTAINERD",
        Which::Podman => "RALPH_TEST_PODMAN",
    };
    let mut env = BTreeMap::from([
        ("DOCKER_HOST".to_owned(), named(variable)?),
        (
            "DOCKER_CONFIG".to_owned(),
            docker_dir.to_string_lossy().into_owned(),
        ),
    ]);
    if which == Which::Containerd {
        let plugins = docker_dir.join("cli-plugins");
        std::fs::create_dir_all(&plugins).unwrap();
        std::os::unix::fs::symlink(named("RALPH_TEST_BUILDX")?, plugins.join("docker-buildx")).unwrap();
    }
    env.extend(surroundings().env.remove_entry("PATH"));
    connect(&EngineEnvironment { env, home: None }).await
}

/// The engine that answers there, or why the test cannot run.
pub async fn engine_at(host: &str) -> Result<Engine, String> {
    let env = BTreeMap::from([("DOCKER_HOST".to_owned(), host.to_owned())]);
    connect(&EngineEnvironment { env, home: None }).await
}

/// What a variable of the tests names, or why the test cannot run.
pub fn named(variable: &str) -> Result<String, String> {
    std::env::var(variable).map_err(|_| format!("{variable} names nothing; tests/run sets it"))
}

async fn connect(surroundings: &EngineEnvironment) -> Result<Engine, String> {
    let engine = Engine::connect(surroundings, &host()).await;
    engine.map_err(|error| format!("{error}; tests/run starts one"))
}

/// What the process was started in.
pub fn surroundings() -> EngineEnvironment {
    let env: BTreeMap<String, String> = std::env::vars().collect();
    EngineEnvironment {
        home: env.get("HOME").map(PathBuf::from),
        env,
    }
}

/// Starts programs with a `PATH` and nothing else.
pub fn host() -> Host {
    let path = std::env::var("PATH").unwrap_or_default();
    Host::new(BTreeMap::from([("PATH".to_owned(), path)]))
}

/// How sealed networks are tested: as `RALPH_TEST_SEAL` states, or handed.
pub fn seal() -> SealChoice {
    match std::env::var(SEAL_VARIABLE).as_deref() {
        Ok("relayed") => SealChoice::Relayed,
        Ok("handed") | Err(_) => SealChoice::Handed,
        Ok(other) => panic!("{SEAL_VARIABLE} is handed or relayed, not {other}"),
    }
}

/// Where workspaces are in tests: as `RALPH_TEST_WORKSPACE` states, or where ralph chooses.
pub fn workspace() -> WorkspaceChoice {
    match std::env::var(WORKSPACE_VARIABLE).as_deref() {
        Ok("volume") => WorkspaceChoice::Volume,
        Ok("shared") => WorkspaceChoice::Shared,
        Err(_) => WorkspaceChoice::Auto,
        Ok(other) => panic!("{WORKSPACE_VARIABLE} is shared or volume, not {other}"),
    }
}

/// The same for a configuration file; empty if nothing is stated, so that ralph chooses.
pub fn seal_config() -> String {
    let settings = [("seal", SEAL_VARIABLE), ("workspace", WORKSPACE_VARIABLE)];
    let stated = settings.map(|(key, variable)| {
        let value = std::env::var(variable).ok()?;
        Some(format!("{key} = \"{value}\"\n"))
    });
    let lines: String = stated.into_iter().flatten().collect();
    if lines.is_empty() {
        lines
    } else {
        format!("[sandbox.docker]\n{lines}")
    }
}

const SEAL_VARIABLE: &str = "RALPH_TEST_SEAL";
const WORKSPACE_VARIABLE: &str = "RALPH_TEST_WORKSPACE";

/// A `docker` provider on that engine, which keeps its workspaces below `dir`.
pub fn options(dir: &Path) -> DockerOptions {
    DockerOptions {
        base: dir.join("sandboxes"),
        engine: surroundings(),
        guest_dir: dir.join("guest"),
        cache: dir.join("image-files"),
        host: host(),
        seal: seal(),
        runtime: None,
        workspace: workspace(),
        host_name: "test".to_owned(),
        clock: ralph::clock::system(),
    }
}

/// Runs a program of an image, without any network, and returns what it printed.
pub fn run(engine: &Engine, image: &str, argv: &[&str]) -> String {
    let start = ["run", "--rm", "--network", "none", image];
    docker(engine, &[&start, argv].concat())
}

/// Runs the `docker` command on this engine and returns what it printed.
pub fn docker(engine: &Engine, args: &[&str]) -> String {
    let output = Command::new("docker")
        .env("DOCKER_HOST", engine.endpoint().to_string())
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "docker {args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}
