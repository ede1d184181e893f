//! The way a run's work comes back into the user's repository.

use std::path::Path;

use super::bundle::{BundleError, Header};
use super::clone::PrivateClone;
use super::error::{Refusal, ScmError};
use super::flag::{Flag, flags};
use super::git::revisions;
use super::history::{self, Commit};
use super::quarantine::Quarantine;
use super::repository::Repository;
use super::secrets;
use super::snapshot::{Snapshot, WORK_REF};
use crate::id::ObjectId;
use crate::sandbox::SandboxErrorKind;
use crate::secret::Redactor;

/// Packs with fewer objects become loose ones, as with `git fetch`; others are kept as packs.
const UNPACK_LIMIT: u32 = 100;

/// What to bring back, and how much of it at most.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The commit the run started from; the branch must descend from it.
    pub base: &'a ObjectId,
    /// What the clone holds.
    pub snapshot: &'a Snapshot,
    /// Commits that this run handed back earlier; the user's repository has them. The last one's `tip` and `commit` are
    /// enough; each costs a little time.
    pub known: &'a [ObjectId],
    /// The longest bundle that is taken, in bytes. It is held in memory while it is checked.
    pub limit: u64,
    /// Knows what must not be taken over.
    pub redactor: &'a Redactor,
}

/// The longest bundle that is taken when nobody says otherwise.
pub const DEFAULT_LIMIT: u64 = 256 * 1024 * 1024;

/// What came back. Its objects are in the user's repository; no ref points at them yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandBack {
    /// The branch's tip.
    pub tip: ObjectId,
    /// The tree of the working directory.
    pub work_tree: ObjectId,
    /// The commit that was brought back: the tip, or one on top of it that holds uncommitted work. One of the
    /// next request's `known`.
    pub commit: ObjectId,
    /// The commits of the branch that are new, newest first. None: the agent committed nothing.
    pub new_commits: Vec<NewCommit>,
    /// What a person should look at, in commits and uncommitted work alike.
    pub flags: Vec<Flag>,
}

/// A commit of the branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCommit {
    /// Which one.
    pub id: ObjectId,
    /// The first line of its message.
    pub subject: String,
}

/// Brings back what the snapshot says: a bundle is made in the sandbox, looked at in a quarantine repository below
/// `scratch`, and its objects are added to the user's repository. No ref, index or working directory is touched.
pub async fn take(
    repository: &Repository,
    clone: &PrivateClone<'_>,
    request: &Request<'_>,
    scratch: &Path,
) -> Result<HandBack, ScmError> {
    let snapshot = request.snapshot;
    let wanted = snapshot.work.as_ref().unwrap_or(&snapshot.tip);
    if wanted == request.base || request.known.contains(wanted) {
        return Ok(hand_back(snapshot, &[], Vec::new()));
    }
    let mut known = request.known.to_vec();
    known.push(request.base.clone());
    let quarantine = Quarantine::make(repository, scratch)?;
    let bundle = match fetch_bundle(clone, &quarantine, request, &known).await {
        // Git makes no empty bundle. The agent went back to a commit that was handed back before.
        Err(ScmError::Git { .. }) if reached_by(repository, wanted, &known).await => {
            quarantine.descends(&snapshot.tip, request.base).await?;
            return Ok(hand_back(snapshot, &[], Vec::new()));
        }
        other => other?,
    };
    let pack = check_header(&bundle, &quarantine, wanted, &known).await?;
    quarantine.index(pack, request.limit).await?;
    let commits = quarantine.new_commits(wanted, &known).await?;
    // Whatever was handed back before descends from the base; only a branch that left it is walked to its end.
    let mut parents = commits.iter().flat_map(|commit| &commit.parents);
    if !parents.any(|parent| known.contains(parent)) {
        quarantine.descends(&snapshot.tip, request.base).await?;
    }
    check_work(&commits, snapshot)?;
    if secrets::any_in(&quarantine.git, &commits, request.redactor).await? {
        return Err(Refusal::Secret.into());
    }
    let flags = flags(&quarantine.git, commits.iter().flat_map(|commit| &commit.changes)).await?;
    adopt(repository, pack).await?;
    Ok(hand_back(snapshot, &commits, flags))
}

fn hand_back(snapshot: &Snapshot, commits: &[Commit], flags: Vec<Flag>) -> HandBack {
    let on_branch = commits
        .iter()
        .filter(|commit| Some(&commit.id) != snapshot.work.as_ref());
    HandBack {
        tip: snapshot.tip.clone(),
        work_tree: snapshot.tree.clone(),
        commit: snapshot.work.as_ref().unwrap_or(&snapshot.tip).clone(),
        new_commits: on_branch
            .map(|commit| NewCommit {
                id: commit.id.clone(),
                subject: commit.subject.clone(),
            })
            .collect(),
        flags,
    }
}

/// Whether the user's repository has the commit as an ancestor of one that it is known to have.
async fn reached_by(repository: &Repository, commit: &ObjectId, known: &[ObjectId]) -> bool {
    let new = history::new_commits(&repository.git, commit, known).await;
    new.is_ok_and(|commits| commits.is_empty())
}

/// Has the sandbox make a bundle of what the host does not know, and copies it out.
async fn fetch_bundle(
    clone: &PrivateClone<'_>,
    quarantine: &Quarantine,
    request: &Request<'_>,
    known: &[ObjectId],
) -> Result<Vec<u8>, ScmError> {
    let inside = clone.dir().join(".git/ralph.bundle");
    let name = if request.snapshot.work.is_some() {
        WORK_REF
    } else {
        "HEAD"
    };
    let git = clone.inside();
    let command = git
        .command()
        .args(["bundle", "create", "--quiet"])
        .arg(inside.to_string_lossy())
        // A clone planted anew may lack what an earlier one handed back.
        .args(["--ignore-missing", "--stdin"])
        .stdin(revisions(name, known));
    git.run(&command).await?;
    let file = quarantine.bundle_file();
    let files = clone.sandbox().files();
    match files.download(&inside, &file, request.limit).await {
        Err(error) if error.kind() == SandboxErrorKind::TooLong => {
            let limit = request.limit;
            return Err(Refusal::TooLong { limit }.into());
        }
        other => other?,
    }
    std::fs::read(&file).map_err(|source| ScmError::File {
        operation: "read",
        path: file,
        source,
    })
}

/// The pack in the bundle, once its header says what was asked for.
async fn check_header<'b>(
    bundle: &'b [u8],
    quarantine: &Quarantine,
    wanted: &ObjectId,
    known: &[ObjectId],
) -> Result<&'b [u8], ScmError> {
    let header = Header::parse(bundle).map_err(Refusal::Bundle)?;
    let (found, _) = header.tip;
    if found != *wanted {
        let expected = wanted.clone();
        return Err(Refusal::Bundle(BundleError::WrongTip { expected, found }).into());
    }
    let to_check: Vec<&ObjectId> = header
        .prerequisites
        .iter()
        .filter(|id| !known.contains(id))
        .collect();
    match quarantine.missing(&to_check).await? {
        Some(id) => Err(Refusal::Bundle(BundleError::UnknownPrerequisite(id)).into()),
        None => Ok(&bundle[header.length..]),
    }
}

/// The commit that holds uncommitted work must be what the snapshot said: the tree, right on top of the tip.
fn check_work(commits: &[Commit], snapshot: &Snapshot) -> Result<(), ScmError> {
    let wanted = snapshot.work.as_ref();
    let Some(work) = commits.iter().find(|commit| Some(&commit.id) == wanted) else {
        return Ok(());
    };
    if work.tree == snapshot.tree && work.parents == [snapshot.tip.clone()] {
        return Ok(());
    }
    Err(Refusal::Objects(format!("{} is not the work on top of {}", work.id, snapshot.tip)).into())
}

/// Adds the objects, which were checked byte for byte, to the user's repository.
async fn adopt(repository: &Repository, pack: &[u8]) -> Result<(), ScmError> {
    let count = pack
        .get(8..12)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u32::from_be_bytes);
    let small = count.is_some_and(|count| count < UNPACK_LIMIT);
    let args: &[&str] = if small {
        &["unpack-objects", "-q"]
    } else {
        &["index-pack", "--stdin", "--fix-thin"]
    };
    let command = repository.git.command().args(args.iter().copied()).stdin(pack);
    repository.git.run(&command).await?;
    Ok(())
}
