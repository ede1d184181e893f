//! What a person can look at in a run besides its state: the changes, the network, the files.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use crate::gateway::audit::{AuditLog, AuditTally, TallyEntry};
use crate::model::CredentialRecord;
use crate::scm::{Checkpoints, Repository, ShownDiff};
use crate::secret::Redactor;
use crate::state::{IterationRecord, RunDir, entries_of, standing_records};

use super::credentials::open_vault;
use super::error::io_error;
use super::{AssemblyError, RunControl};

/// The longest diff of the command line, in bytes.
const DIFF_SHOWN: usize = 64 * 1024 * 1024;

/// The directory of run files in the agent's clone.
pub(super) const RUN_FILES: &str = ".ralph";

/// The task in the agent's clone.
pub(super) const TASK: &str = "ralph_task.md";

/// The hosts that a run reached, and those that were blocked, most frequent first.
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
pub struct NetworkUse {
    /// Allowed requests.
    pub reached: Vec<TallyEntry>,
    /// Denied requests.
    pub blocked: Vec<TallyEntry>,
}

/// Which changes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffRange {
    /// All since its base, uncommitted work included.
    Whole,
    /// Those of one iteration.
    Iteration(u32),
    /// Those after an iteration, uncommitted work included.
    Since(u32),
}

/// The beginning of a file of a run.
#[derive(Clone, Debug)]
pub struct RunFile {
    /// Its text; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The length of the whole file.
    pub bytes: u64,
    /// Whether the text lacks the end of the file.
    pub is_cut: bool,
}

impl RunFile {
    /// The same without secrets that the redactor knows, and without the part of one at the end of a text that is cut.
    #[must_use]
    pub fn redacted(self, redactor: &Redactor) -> Self {
        let text = if self.is_cut {
            // A character may be cut in two as well.
            let whole = self.text.trim_end_matches(char::REPLACEMENT_CHARACTER);
            redactor.redact_cut(whole, "").0
        } else {
            redactor.redact(&self.text)
        };
        Self { text, ..self }
    }
}

impl RunControl {
    /// What a run changed, uncommitted work included: since its base, or in one iteration. `None` if it recorded nothing yet.
    pub async fn diff(
        &self,
        run: &RunDir,
        iteration: Option<u32>,
        only_counts: bool,
    ) -> Result<Option<String>, AssemblyError> {
        let range = iteration.map_or(DiffRange::Whole, DiffRange::Iteration);
        let redactor = Redactor::default();
        let diff = self
            .diff_within(run, range, only_counts, DIFF_SHOWN, &redactor)
            .await?;
        Ok(diff.map(|diff| diff.text))
    }

    /// The same, with about `limit` bytes of it, and without secrets that the redactor knows.
    pub(crate) async fn diff_within(
        &self,
        run: &RunDir,
        range: DiffRange,
        only_counts: bool,
        limit: usize,
        redactor: &Redactor,
    ) -> Result<Option<ShownDiff>, AssemblyError> {
        let facts = run.facts();
        let host = self.context.surroundings.host();
        let repository = Repository::open(host, &facts.repository).await?;
        let lines = run.journal()?;
        let records = standing_records(&lines);
        let position = |number: u32| {
            let is = |record: &&IterationRecord| record.iteration == number;
            records
                .iter()
                .position(is)
                .ok_or_else(|| no_iteration(run, number))
        };
        let from = match range {
            DiffRange::Whole => None,
            DiffRange::Iteration(number) => position(number)?.checked_sub(1),
            DiffRange::Since(number) => Some(position(number)?),
        };
        let from = from.map_or_else(|| facts.base.clone(), |at| records[at].tree.clone());
        let to = if let DiffRange::Iteration(number) = range {
            records[position(number)?].tree.clone()
        } else {
            let checkpoints = Checkpoints::new(repository.clone(), facts.id.clone());
            let Some(checkpoint) = checkpoints.load().await? else {
                return Ok(None);
            };
            checkpoint.work_tree
        };
        let diff = repository.diff_text(&from, &to, only_counts, limit, redactor);
        Ok(Some(diff.await?))
    }

    /// Removes the secrets that this host knows from texts about a run: those of its configuration, and stored credentials.
    pub async fn redactor(&self, run: &RunDir) -> Result<Redactor, AssemblyError> {
        let redactor = Redactor::new(self.configuration(run)?.secrets());
        let vault = open_vault(&self.context)?;
        for kind in CredentialRecord::all() {
            let stored = vault.load(kind).await?;
            redactor.learn(stored.iter().flat_map(|(credential, _)| credential.secrets()));
        }
        Ok(redactor)
    }

    /// The hosts that a run reached or could not reach. Empty without a gateway, as on `local`.
    pub fn network_use(run: &RunDir) -> Result<NetworkUse, AssemblyError> {
        let records = AuditLog::read(&run.network_file())?;
        let tally: AuditTally = records.iter().collect();
        Ok(NetworkUse {
            reached: tally.reached().collect(),
            blocked: tally.blocked().collect(),
        })
    }

    /// The paths of the files of a run that a person can read: the task and everything below `.ralph/`.
    pub fn files(run: &RunDir) -> Result<Vec<String>, AssemblyError> {
        let mut found = Vec::new();
        if run.task_file().is_file() {
            found.push(TASK.to_owned());
        }
        let mut dirs = vec![(run.ralph_dir(), RUN_FILES.to_owned())];
        while let Some((dir, shown)) = dirs.pop() {
            for path in entries_of(&dir)? {
                let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                    continue;
                };
                let shown = format!("{shown}/{name}");
                let kind = path.symlink_metadata().map_err(io_error("read", &path))?;
                if kind.is_dir() {
                    dirs.push((path, shown));
                } else if kind.is_file() && !name.starts_with('.') {
                    found.push(shown);
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// At most `limit` bytes of a file that [`RunControl::files`] lists.
    pub fn file(run: &RunDir, path: &str, limit: u64) -> Result<RunFile, AssemblyError> {
        let found = host_path(run, path).filter(|found| is_plain_file(run.path(), found));
        let Some(found) = found else {
            let id = &run.facts().id;
            return Err(
                AssemblyError::not_found(format!("run `{id}` has no file `{path}`")).with_hint(
                    "the task is `ralph_task.md`; other files of a run are below `.ralph/`, without `..` or links",
                ),
            );
        };
        let file = File::open(&found).map_err(io_error("read", &found))?;
        let bytes = file.metadata().map_err(io_error("read", &found))?.len();
        let mut text = Vec::new();
        file.take(limit)
            .read_to_end(&mut text)
            .map_err(io_error("read", &found))?;
        Ok(RunFile {
            text: String::from_utf8_lossy(&text).into_owned(),
            bytes,
            is_cut: bytes > limit,
        })
    }
}

/// The error for an iteration that was not recorded, or was taken back.
pub(crate) fn no_iteration(run: &RunDir, number: u32) -> AssemblyError {
    let id = &run.facts().id;
    AssemblyError::not_found(format!("run `{id}` has no iteration {number}"))
}

/// Where a file of a run is on the host. `None` for any other path.
fn host_path(run: &RunDir, path: &str) -> Option<PathBuf> {
    if path == TASK {
        return Some(run.task_file());
    }
    let below = Path::new(path).strip_prefix(RUN_FILES).ok()?;
    let is_name = |part: Component<'_>| match part {
        Component::Normal(name) => !name.as_encoded_bytes().contains(&0),
        _ => false,
    };
    let is_named = below.components().next().is_some() && below.components().all(is_name);
    is_named.then(|| run.ralph_dir().join(below))
}

/// Whether a path below `dir` is a file and no part of it is a link, which an agent could have made.
fn is_plain_file(dir: &Path, path: &Path) -> bool {
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|kind| kind.is_symlink());
    let mut parts = path.ancestors().take_while(|part| *part != dir);
    path.is_file() && !parts.any(is_link)
}
