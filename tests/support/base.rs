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

/// The name of the image with tools, or why the test cannot run. The npm of trixie's packages does not authenticate at a proxy.
pub async fn tools(engine: &Engine) -> Result<String, String> {
    given(
        engine,
        "ralph-test-tools:bookworm",
        &["make-debian", "tools", "bookworm"],
    )
    .await
}

/// An image that the engine has, or is given. Two that do so at once come to the same.
async fn given(engine: &Engine, name: &str, script: &[&str]) -> Result<String, String> {
    let found = engine.image(name).await.map_err(|error| error.to_string())?;
    if found.is_none() {
        docker(engine, &["import", archive(script)?.to_str().unwrap(), name]);
    }
    Ok(name.to_owned())
}

/// The root file system as an archive, by a script of this directory.
fn archive(script: &[&str]) -> Result<PathBuf, String> {
    let dir = env!("CARGO_MANIFEST_DIR");
    let program = format!("{dir}/{}", script[0]);
    let made = Command::new(program)
        .args(&script[1..])
        .output()
        .map_err(|error| error.to_string())?;
    if !made.status.success() {
        return Err(format!(
            "no Debian to start from could be made: {}",
            String::from_utf8_lossy(&made.stderr)
        ));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&made.stdout).trim()))
}
