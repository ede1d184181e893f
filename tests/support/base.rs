//! The image that sandboxes of the tests start from: a small Debian with git and curl, which `tests/support/make-base` makes.
//! It is given to the engine once and stays there; `tests/run` takes it away again.

use std::path::PathBuf;
use std::process::Command;

use ralph::engine::Engine;

use super::engine::docker;

/// What it is called on the engine.
pub const NAME: &str = "ralph-test-base:bookworm-curl";

/// The image's name, or why the test cannot run.
pub async fn image(engine: &Engine) -> Result<String, String> {
    let found = engine.image(NAME).await.map_err(|error| error.to_string())?;
    if found.is_none() {
        give(engine)?;
    }
    Ok(NAME.to_owned())
}

/// Gives it to the engine. Two that do so at once come to the same.
fn give(engine: &Engine) -> Result<(), String> {
    let archive = archive()?;
    docker(engine, &["import", archive.to_str().unwrap(), NAME]);
    Ok(())
}

/// The root file system as an archive.
fn archive() -> Result<PathBuf, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/make-base");
    let made = Command::new(script).output().map_err(|error| error.to_string())?;
    if !made.status.success() {
        return Err(format!(
            "no Debian to start from could be made: {}",
            String::from_utf8_lossy(&made.stderr)
        ));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&made.stdout).trim()))
}
