//! The images that sandboxes of the tests start from: a small Debian with git and curl, which `tests/support/make-base` makes,
//! and a larger one with Node and Python. They are given to the engine once and stay there; `tests/run` takes the small one away.

use std::path::PathBuf;
use std::process::Command;

use ralph::engine::Engine;

use super::engine::docker;

/// What the small one is called on the engine.
pub const NAME: &str = "ralph-test-base:bookworm-curl";

/// The small image's name, or why the test cannot run.
pub async fn image(engine: &Engine) -> Result<String, String> {
    given(engine, NAME, &["make-base"]).await
}

/// The Debian with the packages of an agent's Dockerfile, on the engine.
const TOOLS: &str = "ralph-test-tools:trixie";

/// The version of Node that the agents' Dockerfiles fetch.
pub const NODE: &str = "24.11.0";

/// The name of the image with tools, or why the test cannot run. Its Node is [`NODE`]: the npm of Debian 13 does not
/// authenticate at a proxy.
pub async fn tools(engine: &Engine) -> Result<String, String> {
    given(engine, TOOLS, &["make-debian", "tools"]).await?;
    let name = format!("{TOOLS}-node-{NODE}");
    let found = engine.image(&name).await.map_err(|error| error.to_string())?;
    if found.is_none() {
        let dockerfile = concat!(env!("CARGO_MANIFEST_DIR"), "/tools.Dockerfile");
        let context = node()?;
        let build = [
            "build",
            "--quiet",
            "--network",
            "none",
            "--tag",
            &name,
            "--file",
            dockerfile,
        ];
        docker(engine, &[&build[..], &[context.to_str().unwrap()]].concat());
    }
    Ok(name)
}

/// A directory with what nodejs.org has of [`NODE`], or why it cannot be made.
pub fn node() -> Result<PathBuf, String> {
    Ok(made(&["make-node", NODE])?.join(format!("v{NODE}")))
}

/// An image that the engine has, or is given. Two that do so at once come to the same.
async fn given(engine: &Engine, name: &str, script: &[&str]) -> Result<String, String> {
    let found = engine.image(name).await.map_err(|error| error.to_string())?;
    if found.is_none() {
        docker(engine, &["import", made(script)?.to_str().unwrap(), name]);
    }
    Ok(name.to_owned())
}

/// What a script of this directory makes, whose path it prints.
fn made(script: &[&str]) -> Result<PathBuf, String> {
    let dir = env!("CARGO_MANIFEST_DIR");
    let program = format!("{dir}/{}", script[0]);
    let made = Command::new(program)
        .args(&script[1..])
        .output()
        .map_err(|error| error.to_string())?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        return Err(format!("`{}` failed: {said}", script.join(" ")));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&made.stdout).trim()))
}
