//! The keys that a base branch lists.

use super::error::EvidenceKeyError;
use super::key::VerifyingKey;
use super::note::TrustedKey;
use crate::id::ObjectId;
use crate::scm::{EVIDENCE_KEYS_DIR, RepoPath, Repository, ScmError, texts_at};

/// What a base branch lists.
#[derive(Debug, Default)]
pub struct BaseKeys {
    /// The keys that count.
    pub trusted: Vec<TrustedKey>,
    /// Keys that the branch of the commit added itself, which do not count.
    pub own: Vec<TrustedKey>,
    /// Files that are no keys.
    pub unusable: Vec<EvidenceKeyError>,
}

/// Reads the keys for `commit` from the tip of the base branch. `branch` is its name, for people.
///
/// Neither the working directory nor the commit decides which keys count: a key that the branch of the commit itself added
/// does not, even if that branch is merged by now. It is known by where the branch left the base. Where the base was
/// fast-forwarded to the branch, that is not known, and its earlier commits count as those of the base.
pub async fn keys_on_base(
    repository: &Repository,
    branch: &str,
    base: &ObjectId,
    commit: &ObjectId,
) -> Result<BaseKeys, ScmError> {
    let mut keys = BaseKeys::default();
    let mut own = listed(repository, commit).await?;
    let mut before = Vec::new();
    if let Some(fork) = repository.fork_point(base, commit).await? {
        before = listed(repository, &fork.before).await?;
        // Other commits of the branch, and the merge itself, may have added keys too.
        if let Some(merge) = fork.merge {
            own.extend(listed(repository, &merge).await?);
        }
    }
    let has = |keys: &[KeyFile], key: &VerifyingKey| {
        keys.iter()
            .any(|(_, parsed)| parsed.as_ref().is_ok_and(|one| one == key))
    };
    for (path, parsed) in listed(repository, base).await? {
        match parsed {
            Err(error) => keys.unusable.push(error),
            Ok(key) => {
                let source = format!("{path} on {branch}");
                let is_own = has(&own, &key) && !has(&before, &key);
                let list = if is_own { &mut keys.own } else { &mut keys.trusted };
                list.push(TrustedKey { source, key });
            }
        }
    }
    Ok(keys)
}

/// The path of a listed file, and its key.
type KeyFile = (String, Result<VerifyingKey, EvidenceKeyError>);

/// The keys in the tree of a commit.
async fn listed(repository: &Repository, commit: &ObjectId) -> Result<Vec<KeyFile>, ScmError> {
    let found = repository.tracked(commit, [EVIDENCE_KEYS_DIR]).await?;
    let is_pem = |path: &&RepoPath| path.as_bytes().ends_with(b".pem");
    let paths: Vec<String> = found.iter().filter(is_pem).map(ToString::to_string).collect();
    let texts = texts_at(repository, commit, &paths).await?;
    let parse = |(path, text): (String, Option<String>)| {
        let parsed = VerifyingKey::parse(&path, &text.unwrap_or_default());
        (path, parsed)
    };
    Ok(paths.into_iter().zip(texts).map(parse).collect())
}
