//! The container engine that tests run against: the one that answers. `tests/run` starts one where none does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use ralph::engine::{Engine, Surroundings};
use ralph::exec::Host;
use ralph::sandbox::docker::DockerOptions;

/// The engine, or why the test cannot run.
pub async fn engine() -> Result<Engine, String> {
    let engine = Engine::connect(&surroundings(), &host()).await;
    engine.map_err(|error| format!("{error}; tests/run starts one"))
}

/// What the process was started in.
pub fn surroundings() -> Surroundings {
    let env: BTreeMap<String, String> = std::env::vars().collect();
    Surroundings {
        home: env.get("HOME").map(PathBuf::from),
        env,
    }
}

/// Starts programs with a `PATH` and nothing else.
pub fn host() -> Host {
    let path = std::env::var("PATH").unwrap_or_default();
    Host::new(BTreeMap::from([("PATH".to_owned(), path)]))
}

/// A `docker` provider on that engine, which keeps its workspaces below `dir`.
pub fn options(dir: &Path) -> DockerOptions {
    DockerOptions {
        base: dir.join("sandboxes"),
        surroundings: surroundings(),
        guest_dir: dir.join("guest"),
        host: host(),
        machine: "test".to_owned(),
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
