//! Brings a run's work back into the user's repository.

use std::path::Path;

use super::bundle::{BundleError, BundleHeader};
use super::clone::PrivateClone;
use super::entry::{GITLINK, TreeChange, TreeEntry};
use super::error::{HandBackRefusal, ScmError};
use super::git::{revisions, uninterrupted};
use super::history::{self, HistoryCommit};
use super::path::RepoPath;
use super::quarantine::Quarantine;
use super::repository::Repository;
use super::secrets;
use super::snapshot::{Snapshot, WORK_REF};
use crate::id::ObjectId;
use crate::sandbox::SandboxErrorKind;
use crate::secret::Redactor;

/// Packs with fewer objects are unpacked to loose objects, as with `git fetch`.
const UNPACK_LIMIT: u32 = 100;

/// What to bring back.
#[derive(Clone, Copy, Debug)]
pub struct HandBackRequest<'a> {
    /// The commit that the run started from. The branch must descend from it.
    pub base: &'a ObjectId,
    /// The snapshot of the clone.
    pub snapshot: &'a Snapshot,
    /// Commits that this run handed back earlier, which are in the user's repository. The last `tip` and `commit` are
    /// enough; each costs a little time.
    pub known: &'a [ObjectId],
    /// The longest bundle that is accepted, in bytes. It is held in memory while it is checked.
    pub limit: u64,
    /// The secrets that must not be handed back.
    pub redactor: &'a Redactor,
}

/// The default of [`HandBackRequest::limit`].
pub const DEFAULT_BUNDLE_LIMIT: u64 = 256 * 1024 * 1024;

/// The result of a hand-back. Its objects are in the user's repository, but no ref points at them yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandBack {
    /// The tip of the branch.
    pub tip: ObjectId,
    /// The tree of the working directory.
    pub work_tree: ObjectId,
    /// The commit that was handed back: the tip, or one on top of it with the uncommitted work. Add it to `known` of the
    /// next request.
    pub commit: ObjectId,
    /// The new commits of the branch, newest first. Empty if the agent committed nothing.
    pub new_commits: Vec<ObjectId>,
    /// Whether one of the new commits changes a file.
    pub changes_files: bool,
    /// Nested repositories that the new commits refer to. Their files are not handed back.
    pub repositories: Vec<RepoPath>,
}

/// Hands back a snapshot: creates a bundle in the sandbox, checks it in a quarantine repository below `scratch`, and adds
/// its objects to the user's repository. Changes no ref, index or working directory.
pub async fn hand_back(
    repository: &Repository,
    clone: &PrivateClone<'_>,
    request: &HandBackRequest<'_>,
    scratch: &Path,
) -> Result<HandBack, ScmError> {
    let snapshot = request.snapshot;
    let wanted = snapshot.work.as_ref().unwrap_or(&snapshot.tip);
    if wanted == request.base || request.known.contains(wanted) {
        return Ok(result(snapshot, &[]));
    }
    let mut known = request.known.to_vec();
    known.push(request.base.clone());
    let quarantine = Quarantine::create(repository, scratch)?;
    let bundle = match fetch_bundle(clone, &quarantine, request, &known).await {
        // Git creates no empty bundle. The agent went back to a commit that was handed back before.
        Err(ScmError::Git { .. }) if reached_by(repository, wanted, &known).await => {
            quarantine.check_descends(&snapshot.tip, request.base).await?;
            return Ok(result(snapshot, &[]));
        }
        other => other?,
    };
    let pack = check_header(&bundle, &quarantine, wanted, &known).await?;
    quarantine.index(pack, request.limit).await?;
    let commits = quarantine.checked_commits(wanted, &known).await?;
    // What was handed back before descends from the base. Only a branch without a known parent has to be walked.
    let mut parents = commits.iter().flat_map(|commit| &commit.parents);
    if !parents.any(|parent| known.contains(parent)) {
        quarantine.check_descends(&snapshot.tip, request.base).await?;
    }
    check_work(&commits, snapshot)?;
    if secrets::any_in(&quarantine.git, &commits, request.redactor).await? {
        return Err(HandBackRefusal::Secret.into());
    }
    add_objects(repository, pack).await?;
    Ok(result(snapshot, &commits))
}

fn result(snapshot: &Snapshot, commits: &[HistoryCommit]) -> HandBack {
    let new: Vec<&HistoryCommit> = commits
        .iter()
        .filter(|commit| Some(&commit.id) != snapshot.work.as_ref())
        .collect();
    let changes = new.iter().flat_map(|commit| &commit.changes);
    HandBack {
        tip: snapshot.tip.clone(),
        work_tree: snapshot.tree.clone(),
        commit: snapshot.work.as_ref().unwrap_or(&snapshot.tip).clone(),
        new_commits: new.iter().map(|commit| commit.id.clone()).collect(),
        changes_files: changes.clone().next().is_some(),
        repositories: changes.filter_map(new_repository).collect(),
    }
}

/// The path of a nested repository that a change adds.
fn new_repository(change: &TreeChange) -> Option<RepoPath> {
    let is_repository = |entry: &Option<TreeEntry>| entry.as_ref().is_some_and(|entry| entry.mode == GITLINK);
    (is_repository(&change.after) && !is_repository(&change.before)).then(|| change.path.clone())
}

/// Whether the commit is an ancestor of a known commit in the user's repository.
async fn reached_by(repository: &Repository, commit: &ObjectId, known: &[ObjectId]) -> bool {
    let new = history::new_commits(&repository.git, commit, known).await;
    new.is_ok_and(|commits| commits.is_empty())
}

/// Creates a bundle of the unknown commits in the sandbox, and copies it to the host.
async fn fetch_bundle(
    clone: &PrivateClone<'_>,
    quarantine: &Quarantine,
    request: &HandBackRequest<'_>,
    known: &[ObjectId],
) -> Result<Vec<u8>, ScmError> {
    let inside = clone.dir().join(".git/ralph.bundle");
    let name = if request.snapshot.work.is_some() {
        WORK_REF
    } else {
        "HEAD"
    };
    let command = clone
        .command("bundle create --quiet")
        .arg(inside.to_string_lossy())
        // A new clone may lack what an earlier one handed back.
        .args(["--ignore-missing", "--stdin"])
        .stdin(revisions(name, known));
    clone.run(&command).await?;
    let file = quarantine.bundle_file();
    let files = clone.sandbox.files();
    match files.download(&inside, &file, request.limit).await {
        Err(error) if error.kind() == SandboxErrorKind::TooLong => {
            let limit = request.limit;
            return Err(HandBackRefusal::TooLong { limit }.into());
        }
        other => other?,
    }
    std::fs::read(&file).map_err(ScmError::file("read", &file))
}

/// Checks the header of a bundle and returns its pack.
async fn check_header<'b>(
    bundle: &'b [u8],
    quarantine: &Quarantine,
    wanted: &ObjectId,
    known: &[ObjectId],
) -> Result<&'b [u8], ScmError> {
    let header = BundleHeader::parse(bundle).map_err(HandBackRefusal::Bundle)?;
    if header.tip != *wanted {
        let wrong = BundleError::WrongTip {
            expected: wanted.clone(),
            found: header.tip,
        };
        return Err(HandBackRefusal::Bundle(wrong).into());
    }
    let to_check: Vec<&ObjectId> = header
        .prerequisites
        .iter()
        .filter(|id| !known.contains(id))
        .collect();
    match quarantine.first_missing(&to_check).await? {
        Some(id) => Err(HandBackRefusal::Bundle(BundleError::UnknownPrerequisite(id)).into()),
        None => Ok(&bundle[header.length..]),
    }
}

/// The commit with the uncommitted work must be the snapshot's tree directly on top of the tip.
fn check_work(commits: &[HistoryCommit], snapshot: &Snapshot) -> Result<(), ScmError> {
    let wanted = snapshot.work.as_ref();
    let Some(work) = commits.iter().find(|commit| Some(&commit.id) == wanted) else {
        return Ok(());
    };
    if work.tree == snapshot.tree && work.parents == [snapshot.tip.clone()] {
        return Ok(());
    }
    Err(HandBackRefusal::Objects(format!(
        "{} is not the uncommitted work on top of {}",
        work.id, snapshot.tip
    ))
    .into())
}

/// Adds the checked objects to the user's repository.
async fn add_objects(repository: &Repository, pack: &[u8]) -> Result<(), ScmError> {
    let count = pack
        .get(8..12)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u32::from_be_bytes);
    let small = count.is_some_and(|count| count < UNPACK_LIMIT);
    let args = if small {
        "unpack-objects -q"
    } else {
        "index-pack --stdin --fix-thin"
    };
    let git = repository.git.clone();
    let command = git.command(args).stdin(pack);
    uninterrupted(async move { git.run(&command).await.map(drop) }).await
}
