//! The branch that others build on, and where a commit left it.

use super::error::ScmError;
use super::git::{one_id, output};
use super::repository::Repository;
use crate::exec::ExitStatus;
use crate::id::ObjectId;

/// Where the base branch is looked for, after the default branch of `origin`.
const USUAL_BASES: [&str; 4] = [
    "refs/remotes/origin/main",
    "refs/remotes/origin/master",
    "refs/heads/main",
    "refs/heads/master",
];

impl Repository {
    /// The ref of the base branch: the default branch of `origin`, else `main` or `master`, of `origin` first. What is checked
    /// out does not matter.
    pub async fn usual_base(&self) -> Result<Option<String>, ScmError> {
        let command = self.git.command("symbolic-ref --quiet refs/remotes/origin/HEAD");
        let exit = self.git.exit(&command).await?;
        let of_origin = if exit.status == ExitStatus::Code(1) {
            None
        } else {
            let printed = output(&command, &exit)?;
            Some(String::from_utf8_lossy(&printed).trim_end().to_owned())
        };
        let usual = USUAL_BASES.map(str::to_owned);
        for name in of_origin.into_iter().chain(usual) {
            if self.read_ref(&name).await?.is_some() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Where the branch of `commit` left the base branch with the tip `base`; `None` if they share nothing.
    pub async fn fork_point(
        &self,
        base: &ObjectId,
        commit: &ObjectId,
    ) -> Result<Option<ForkPoint>, ScmError> {
        let git = &self.git;
        let printed = git
            .run(&git.command("rev-list --first-parent").arg(base.as_str()))
            .await?;
        let text = String::from_utf8_lossy(&printed).into_owned();
        let tips: Vec<&str> = text.lines().collect();
        // The tips of the base branch, newest first. The first of them contain the commit, if it is merged.
        let (mut containing, mut without) = (0, tips.len());
        while containing < without {
            let middle = usize::midpoint(containing, without);
            if self.is_ancestor(commit, tips[middle]).await? {
                containing = middle + 1;
            } else {
                without = middle;
            }
        }
        let Some(before) = tips.get(containing) else {
            return Ok(None);
        };
        if let Some(merge) = containing.checked_sub(1) {
            return Ok(Some(ForkPoint {
                before: one_id(before.as_bytes())?,
                merge: Some(one_id(tips[merge].as_bytes())?),
            }));
        }
        let command = git.command("merge-base").args([before, commit.as_str()]);
        let exit = git.exit(&command).await?;
        if exit.status == ExitStatus::Code(1) {
            return Ok(None);
        }
        Ok(Some(ForkPoint {
            before: one_id(&output(&command, &exit)?)?,
            merge: None,
        }))
    }
}

/// Where a branch left its base branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkPoint {
    /// The commit of the base branch without the branch: the last one before it was merged, else the common one.
    pub before: ObjectId,
    /// The commit of the base branch that brought the branch, if it is merged.
    pub merge: Option<ObjectId>,
}
