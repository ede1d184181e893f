//! What is cached about flakes between two calls. All of it can be deleted.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::NixError;
use super::flake::Flake;
use super::flake_ref::LocalFlake;
use super::output::FlakeOutput;
use crate::atomic_file::write_cache;
use crate::clock::Clock;
use crate::digest::Digest;
use crate::file_hashes::FileHashes;

/// How many answers are kept. The oldest go first.
const ANSWERS: usize = 256;

/// A directory with the hashes of files, and with what `nix` answered about flakes.
#[derive(Clone)]
pub struct FlakeCache {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
}

impl FlakeCache {
    /// A cache in this directory, which need not exist.
    pub fn new(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            dir: dir.into(),
            clock,
        }
    }

    /// The cached hashes of a repository's files.
    pub(super) fn file_hashes(&self, flake: &LocalFlake) -> FileHashes {
        let root = Digest::sha256(flake.root.as_os_str().as_bytes());
        let store = self.dir.join("files").join(&root.hex()[..16]);
        FileHashes::load(store, self.clock.now())
    }
}

impl Flake {
    /// Whether the flake has a package. Starts `nix` only if the answer is not cached for this content.
    pub async fn has_package_cached(
        &self,
        output: &FlakeOutput,
        content: &Digest,
        cache: &FlakeCache,
    ) -> Result<bool, NixError> {
        let (store, content) = (cache.dir.join("outputs.json"), content.hex());
        let known = Answers::read(&store).answers;
        if let Some(answer) = known.iter().find(|answer| answer.content == content) {
            return Ok(answer.output == StoredPresence::Present);
        }
        let is_present = self.has_package(output).await?;
        let output = if is_present {
            StoredPresence::Present
        } else {
            StoredPresence::Missing
        };
        // Another process may have stored an answer meanwhile.
        let mut stored = Answers::read(&store);
        stored.answers.push(StoredAnswer { content, output });
        let surplus = stored.answers.len().saturating_sub(ANSWERS);
        stored.answers.drain(..surplus);
        if let Ok(text) = serde_json::to_vec(&stored) {
            write_cache(&store, &text);
        }
        Ok(is_present)
    }
}

/// The answers as they are stored, oldest first.
#[derive(Serialize, Deserialize)]
struct Answers {
    version: u32,
    answers: Vec<StoredAnswer>,
}

#[derive(Serialize, Deserialize)]
struct StoredAnswer {
    content: String,
    output: StoredPresence,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredPresence {
    Present,
    Missing,
}

impl Answers {
    const VERSION: u32 = 1;

    /// A file that is missing, damaged or of another version has no answers.
    fn read(path: &Path) -> Self {
        let read = || serde_json::from_slice(&fs::read(path).ok()?).ok();
        read()
            .filter(|answers: &Self| answers.version == Self::VERSION)
            .unwrap_or(Self {
                version: Self::VERSION,
                answers: Vec::new(),
            })
    }
}
