//! Moves refs of a remote repository by compare-and-swap.

use std::collections::BTreeMap;

use super::error::ScmError;
use super::git::{failure, message, one_id};
use super::push::{GitRemote, Remote};
use super::repository::Repository;
use crate::id::ObjectId;

/// What git says if the server refuses a request with a status from 400 to 499. Nothing was moved then, and a server whose rate
/// limit this is wants no other request.
const REFUSED: &str = "returned error: 4";

/// A change of one ref of a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefMove {
    /// The full name of the ref.
    pub name: String,
    /// Where it is now. `None` means that it must not exist.
    pub from: Option<ObjectId>,
    /// Where it is afterwards. `None` deletes it.
    pub to: Option<ObjectId>,
}

impl RefMove {
    fn lease(&self) -> String {
        let from = self.from.as_ref().map(ObjectId::as_str).unwrap_or_default();
        format!("--force-with-lease={}:{from}", self.name)
    }

    fn refspec(&self) -> String {
        let to = self.to.as_ref().map(ObjectId::as_str).unwrap_or_default();
        format!("{to}:{}", self.name)
    }
}

impl Repository {
    /// Moves refs of a remote with one push. Each is moved or refused for itself; the results have the order of the moves. No
    /// two of them may have the same ref.
    ///
    /// A ref that is not at `from` is [`ScmError::RefMoved`]; one that the server refuses to move is [`ScmError::PushRefused`].
    /// After any other error it is unknown whether the ref was moved, and the same move may be tried again.
    pub async fn move_refs(
        &self,
        remote: &Remote,
        moves: &[RefMove],
    ) -> Result<Vec<Result<(), ScmError>>, ScmError> {
        self.move_refs_at(remote, moves).await
    }

    /// Like [`Repository::move_refs`], but moves all of the refs or none.
    pub async fn move_refs_together(
        &self,
        remote: &Remote,
        moves: &[RefMove],
    ) -> Result<Vec<Result<(), ScmError>>, ScmError> {
        self.push_moves(remote, &["--atomic"], moves).await
    }

    pub(super) async fn move_refs_at(
        &self,
        remote: &dyn GitRemote,
        moves: &[RefMove],
    ) -> Result<Vec<Result<(), ScmError>>, ScmError> {
        self.push_moves(remote, &[], moves).await
    }

    async fn push_moves(
        &self,
        remote: &dyn GitRemote,
        options: &[&str],
        moves: &[RefMove],
    ) -> Result<Vec<Result<(), ScmError>>, ScmError> {
        let args = "push --porcelain --no-verify --no-follow-tags --no-recurse-submodules";
        let command = remote
            .command(&self.git, args)
            .args(options.iter().copied())
            .args(moves.iter().map(RefMove::lease))
            .args(["--", remote.url()])
            .args(moves.iter().map(RefMove::refspec));
        let exit = self.git.exit(&command).await?;
        if exit.success() {
            return Ok(moves.iter().map(|_| Ok(())).collect());
        }
        let names: Vec<&str> = moves.iter().map(|one| one.name.as_str()).collect();
        let all_failed = || Ok(moves.iter().map(|_| Err(failure(&command, &exit))).collect());
        if exit.stderr.text().contains(REFUSED) {
            return all_failed();
        }
        // The answer may be lost after the push was done, and a lease may fail because a person pushed.
        let Ok(found) = self.remote_refs(remote, &names).await else {
            return all_failed();
        };
        let printed = exit.stdout.text();
        let result = |one: &RefMove| {
            let found = found.get(&one.name);
            if found == one.to.as_ref() {
                return Ok(());
            }
            if found != one.from.as_ref() {
                return Err(ScmError::RefMoved {
                    name: one.name.clone(),
                    expected: one.from.clone(),
                    found: found.cloned(),
                });
            }
            match refusal(&printed, &one.name) {
                Some(reason) => Err(ScmError::PushRefused {
                    url: remote.url().to_owned(),
                    branch: one
                        .name
                        .strip_prefix("refs/heads/")
                        .unwrap_or(&one.name)
                        .to_owned(),
                    reason: format!("{reason}\n{}", message(&exit)),
                }),
                None => Err(failure(&command, &exit)),
            }
        };
        Ok(moves.iter().map(result).collect())
    }

    /// The objects of a remote's refs, by their full names, asked now. Refs that do not exist are left out.
    pub(super) async fn remote_refs(
        &self,
        remote: &dyn GitRemote,
        names: &[&str],
    ) -> Result<BTreeMap<String, ObjectId>, ScmError> {
        let command = remote
            .command(&self.git, "ls-remote --refs --")
            .arg(remote.url())
            .args(names.iter().copied());
        let printed = self.git.run(&command).await?;
        let text = String::from_utf8_lossy(&printed);
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        // Git also lists refs whose names end like one of these.
        let listed = lines.filter(|(_, name)| names.contains(name));
        listed
            .map(|(id, name)| Ok((name.to_owned(), one_id(id.as_bytes())?)))
            .collect()
    }
}

/// Why a ref was not moved, in what `git push --porcelain` printed: a flag, both sides of the refspec and the reason, by tabs.
fn refusal<'p>(printed: &'p str, name: &str) -> Option<&'p str> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix("!\t"));
    let mut refused = lines.filter_map(|line| line.split_once('\t'));
    let found = refused.find(|(refspec, _)| {
        let to = refspec.rsplit_once(':').map(|(_, to)| to);
        to == Some(name)
    });
    found.map(|(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ref_has_its_own_reason() {
        let printed = "To https://host/o/r.git\n*\tabc:refs/x/1\t[new reference]\n!\tabc:refs/x/11\t[rejected] (stale info)\n\
                       !\t(delete):refs/x/2\t[remote rejected] (hook declined)\nDone\n";
        assert_eq!(refusal(printed, "refs/x/1"), None);
        assert_eq!(refusal(printed, "refs/x/11"), Some("[rejected] (stale info)"));
        assert_eq!(
            refusal(printed, "refs/x/2"),
            Some("[remote rejected] (hook declined)")
        );
    }
}
