//! Where the commands of one evidence run find nothing that the agent left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{SandboxError, SandboxFiles};

/// Fresh directories and variables for one evidence run. [`Sandbox::evidence_space`](super::Sandbox::evidence_space)
/// makes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvidenceSpace {
    /// Where the commit is checked out. Nothing is there yet.
    pub checkout: PathBuf,
    /// Variables of each evidence command, in place of those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// What evidence still shares with commands of the agent, for people.
    pub shared: Vec<String>,
    /// Files outside the checkout that evidence may read and that were written since the sandbox was created.
    pub written: Vec<PathBuf>,
}

impl EvidenceSpace {
    /// The directory of the space in a sandbox with this root.
    #[must_use]
    pub fn dir(root: &Path) -> PathBuf {
        root.join("evidence")
    }

    /// Where the commit is checked out in a sandbox with this root.
    #[must_use]
    pub fn checkout_dir(root: &Path) -> PathBuf {
        Self::dir(root).join("checkout")
    }

    /// A space in a sandbox with this root, whose directories the caller creates.
    pub(super) fn new(root: &Path) -> Self {
        let dir = Self::dir(root);
        let at = |name: &str| dir.join(name).to_string_lossy().into_owned();
        let variables = [
            ("HOME", at("home")),
            ("TMPDIR", at("tmp")),
            ("TMP", at("tmp")),
            ("TEMP", at("tmp")),
            ("XDG_RUNTIME_DIR", at("tmp")),
            ("XDG_CONFIG_HOME", at("home/.config")),
            ("XDG_CACHE_HOME", at("home/.cache")),
            ("XDG_DATA_HOME", at("home/.local/share")),
            ("XDG_STATE_HOME", at("home/.local/state")),
        ];
        Self {
            checkout: Self::checkout_dir(root),
            env: variables
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            shared: Vec::new(),
            written: Vec::new(),
        }
    }

    /// A space whose directories are created through the files of the sandbox.
    pub(super) async fn create(root: &Path, files: &dyn SandboxFiles) -> Result<Self, SandboxError> {
        let dir = Self::dir(root);
        files.remove(&dir).await?;
        files.mkdir(&dir.join("home")).await?;
        files.mkdir(&dir.join("tmp")).await?;
        Ok(Self {
            shared: vec![
                "the installed programs and every path outside the run's directory, such as `/tmp` and `/etc`".to_owned(),
                "the files of the agent, by their paths".to_owned(),
                "what keeps the sandbox running, which the agent may have changed".to_owned(),
            ],
            ..Self::new(root)
        })
    }
}
