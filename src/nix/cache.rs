//! What ralph remembers about flakes from one call to the next. All of it can be deleted.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::NixError;
use super::flake::{Flake, Presence};
use super::flake_ref::LocalFlake;
use super::inputs::{ContentHash, hex};
use super::output::FlakeOutput;
use crate::clock::Clock;
use crate::remember::{self, FileHashes};

/// How many answers are kept; the oldest go first.
const ANSWERS: usize = 256;

/// A directory with the hashes of files, and with what nix said about flakes.
#[derive(Clone)]
pub struct Cache {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
}

impl Cache {
    /// The cache in this directory, which need not exist.
    pub fn new(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            dir: dir.into(),
            clock,
        }
    }

    /// The remembered hashes of a repository's files.
    pub(super) fn file_hashes(&self, flake: &LocalFlake) -> FileHashes {
        let name = hex(&Sha256::digest(flake.root().as_os_str().as_bytes())[..8]);
        let store = self.dir.join("files").join(name);
        FileHashes::load(store, self.clock.now())
    }

    fn answers(&self) -> PathBuf {
        self.dir.join("outputs.json")
    }
}

impl Flake {
    /// Whether the flake has a package. Starts nix only when that is not remembered for this very content.
    pub async fn has_remembered(
        &self,
        output: &FlakeOutput,
        content: &ContentHash,
        cache: &Cache,
    ) -> Result<Presence, NixError> {
        let store = cache.answers();
        if let Some(presence) = Answers::read(&store).find(content) {
            return Ok(presence);
        }
        let presence = self.has(output).await?;
        Answers::read(&store).with(content, presence).write(&store);
        Ok(presence)
    }
}

/// The answers as they are stored, oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answers {
    version: u32,
    answers: Vec<Answer>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    content: String,
    output: StoredPresence,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredPresence {
    Present,
    Missing,
}

impl Answers {
    const VERSION: u32 = 1;

    /// A file that is missing, damaged or of another version remembers nothing.
    fn read(path: &Path) -> Self {
        fs::read(path)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .filter(|answers: &Self| answers.version == Self::VERSION)
            .unwrap_or_default()
    }

    fn find(&self, content: &ContentHash) -> Option<Presence> {
        let content = content.to_string();
        let answer = self.answers.iter().find(|answer| answer.content == content)?;
        Some(match answer.output {
            StoredPresence::Present => Presence::Present,
            StoredPresence::Missing => Presence::Missing,
        })
    }

    fn with(mut self, content: &ContentHash, presence: Presence) -> Self {
        self.version = Self::VERSION;
        self.answers.push(Answer {
            content: content.to_string(),
            output: match presence {
                Presence::Present => StoredPresence::Present,
                Presence::Missing => StoredPresence::Missing,
            },
        });
        let surplus = self.answers.len().saturating_sub(ANSWERS);
        self.answers.drain(..surplus);
        self
    }

    fn write(&self, path: &Path) {
        if let Ok(text) = serde_json::to_vec(self) {
            remember::save(path, &text);
        }
    }
}
