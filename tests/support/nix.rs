//! Nix, where tests can build with it.

use std::path::{Path, PathBuf};

use super::skip::program;

/// No build users, no sandbox and no network: what a container of a CI has.
pub const CONFIG: &str = "sandbox = false\nbuild-users-group =\nsubstituters =";

/// Nix, where its store is this user's own: a daemon would build with its own settings, away from busybox.
pub fn with_own_store() -> Result<PathBuf, String> {
    let found = program("nix")?;
    let is_there = |dir: &&str| Path::new(dir).exists();
    let nearest = ["/nix/store", "/nix", "/"].into_iter().find(is_there).unwrap();
    rustix::fs::access(nearest, rustix::fs::Access::WRITE_OK)
        .map_err(|_| format!("`{nearest}` cannot be written"))?;
    Ok(found)
}
