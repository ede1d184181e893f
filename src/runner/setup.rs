//! What the `setup_command` made, kept on the host for the sandboxes that need the same.
//!
//! The command runs on the base commit, in a sandbox that no agent was in. Its result is what it left in the home
//! directory and in the checkout. Both the agent and evidence start from it, as long as the files that the command
//! reads are those of the base commit.

use std::fs::{self, FileTimes};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use crate::digest::Digest;
use crate::exec::{Command, Discard, Exit};
use crate::sandbox::{Sandbox, SandboxError, SandboxErrorKind, clone_dir};
use crate::scm::RepoPath;
use crate::state::if_exists;
use crate::task::LOCK_FILES;

/// The files of a layer.
const FILES: [&str; 3] = ["names", "home.tar", "checkout.tar"];
/// A larger result is not kept.
const MAX_BYTES: u64 = 8 << 30;
/// A layer that was not used for so long is removed.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const TIMEOUT: Duration = Duration::from_secs(600);
/// Changes with what a layer contains.
const FORMAT: &str = "1";

/// Fails if the command changed files of the commit, which a layer does not contain.
const SAVE: &str = r#"
git diff --quiet HEAD -- || exit 1
mkdir -p "$HOME" "$LAYER" || exit 1
git ls-files -z --others --directory > "$LAYER/names" || exit 1
tar -C "$HOME" -cf "$LAYER/home.tar" . && tar --null -T "$LAYER/names" -cf "$LAYER/checkout.tar"
"#;
/// Fails if the commit has files where the layer has some: only the command itself decides which ones count.
const RESTORE: &str = r#"
export GIT_LITERAL_PATHSPECS=1
[ -z "$(xargs -0 -r git ls-files -- < "$LAYER/names" | head -n 1)" ] || exit 1
mkdir -p "$HOME" && tar -C "$HOME" -xf "$LAYER/home.tar" && tar -xf "$LAYER/checkout.tar"
"#;

/// Whether a set-up command reads this file: it is a lock file, or the command names it.
pub(super) fn is_input(command: &str, path: &RepoPath) -> bool {
    let (_, name) = path.split();
    let is_lock = LOCK_FILES.iter().any(|(file, _)| file.as_bytes() == name);
    let mut words = command.split(|c: char| c.is_whitespace() || ";&|()<>=\"'".contains(c));
    is_lock || words.any(|word| word.trim_start_matches("./").as_bytes() == path.as_bytes())
}

/// The result of one set-up command for one image and one version of the files that the command reads.
#[derive(Debug)]
pub(super) struct SetupLayer {
    dir: PathBuf,
}

impl SetupLayer {
    /// The layer of this command, in this directory. `inputs` are the files that it reads, with the hashes of their
    /// contents.
    pub(super) fn new(cache: &Path, image: &str, command: &str, inputs: &[Vec<u8>]) -> Self {
        let fields = [FORMAT, image, command].map(str::as_bytes);
        let inputs = inputs.iter().map(Vec::as_slice);
        let key = Digest::sha256_fields(fields.into_iter().chain(inputs));
        Self {
            dir: cache.join(key.hex()),
        }
    }

    /// Whether it was made.
    pub(super) fn exists(&self) -> bool {
        self.dir.is_dir()
    }

    /// Keeps what the command left in this sandbox, in which nothing else ran. Returns false if it cannot be kept.
    pub(super) async fn save(&self, sandbox: &dyn Sandbox, now: Timestamp) -> Result<bool, SandboxError> {
        if !run(sandbox, SAVE).await?.success() {
            return Ok(false);
        }
        let host = |error| SandboxError::host("write", &self.dir, error);
        let cache = self.dir.parent().unwrap_or(&self.dir);
        fs::create_dir_all(cache).map_err(host)?;
        remove_old(cache, now).map_err(host)?;
        let new = tempfile::tempdir_in(cache).map_err(host)?;
        for name in FILES {
            let from = layer_dir(sandbox).join(name);
            let files = sandbox.files();
            match files.download(&from, &new.path().join(name), MAX_BYTES).await {
                Err(error) if error.kind() == SandboxErrorKind::TooLong => return Ok(false),
                downloaded => downloaded?,
            }
        }
        // Another run may have been faster.
        match fs::rename(new.path(), &self.dir) {
            Err(error) if !self.exists() => Err(host(error)),
            _ => Ok(true),
        }
    }

    /// Unpacks it into the home directory and the clone of a sandbox. Returns false if the command has to run instead.
    pub(super) async fn restore(&self, sandbox: &dyn Sandbox, now: Timestamp) -> Result<bool, SandboxError> {
        let (files, dir) = (sandbox.files(), layer_dir(sandbox));
        files.remove(&dir).await?;
        files.mkdir(&dir).await?;
        for name in FILES {
            files.upload(&self.dir.join(name), &dir.join(name)).await?;
        }
        let restored = run(sandbox, RESTORE).await?.success();
        files.remove(&dir).await?;
        mark_used(&self.dir, now);
        Ok(restored)
    }
}

/// Where the files of a layer are inside a sandbox while they are packed or unpacked.
fn layer_dir(sandbox: &dyn Sandbox) -> PathBuf {
    sandbox.root().join("setup")
}

async fn run(sandbox: &dyn Sandbox, script: &str) -> Result<Exit, SandboxError> {
    let command = Command::shell(script)
        .cwd(clone_dir(sandbox))
        .env("LAYER", layer_dir(sandbox).to_string_lossy())
        .timeout(TIMEOUT);
    let exit = sandbox.exec_trusted(&command, &mut Discard).await?;
    if !exit.success() {
        tracing::debug!(stderr = exit.stderr.text(), "cannot use a set-up layer");
    }
    Ok(exit)
}

/// Counts the age of a layer from now. If that fails, it is removed early, and made again.
fn mark_used(dir: &Path, now: Timestamp) {
    let times = FileTimes::new().set_modified(now.into());
    let marked = fs::File::open(dir).and_then(|file| file.set_times(times));
    if let Err(error) = marked {
        tracing::debug!(%error, "cannot mark a set-up layer as used");
    }
}

/// Removes what was not used for long. Other runs add and remove layers at the same time.
fn remove_old(cache: &Path, now: Timestamp) -> io::Result<()> {
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        let Some(metadata) = if_exists(entry.metadata())? else {
            continue;
        };
        let age = SystemTime::from(now).duration_since(metadata.modified()?);
        if age.is_ok_and(|age| age > MAX_AGE) {
            if_exists(fs::remove_dir_all(entry.path()))?;
        }
    }
    Ok(())
}
