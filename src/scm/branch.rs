//! The name of a run's branch.

use std::collections::HashSet;

use super::error::ScmError;
use super::repository::Repository;
use crate::id::ObjectId;

/// The longest component, in bytes. Longer ones are cut.
const LONGEST_PART: usize = 48;

/// `<prefix>/<task id>/<title>`, each component as a [`slug`]. A prefix that has the task id is followed by the title.
#[must_use]
pub fn branch_name(prefix: &str, task_id: &str, title: &str) -> String {
    let slugs = |text: &str| -> Vec<String> {
        let parts = text.split('/').filter(|part| !part.is_empty());
        parts.map(slug).collect()
    };
    let mut parts = slugs(prefix);
    let id = slug(task_id);
    let has_id = parts.len() > 1 && parts.last() == Some(&id);
    if !has_id {
        parts.push(id);
    }
    if !title.is_empty() {
        parts.push(slug(title));
    }
    parts.join("/")
}

/// Lower-case ASCII letters and digits with single dashes between words. `task` if nothing is left.
#[must_use]
pub fn slug(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    let mut slug = words.collect::<Vec<_>>().join("-");
    slug.truncate(LONGEST_PART);
    match slug.trim_end_matches('-') {
        "" => "task".to_owned(),
        rest => rest.to_owned(),
    }
}

/// Whether this branch is `of` itself, or one that [`free_branch`] makes from it: `of-v2`, `of-v3`, ...
#[must_use]
pub fn is_version(name: &str, of: &str) -> bool {
    let version = name.strip_prefix(of).and_then(|rest| rest.strip_prefix("-v"));
    name == of || version.is_some_and(|version| version.parse::<u64>().is_ok_and(|version| version > 1))
}

/// Reserves the first of `name`, `name-v2`, `name-v3`, ... that is neither a branch of the repository, nor reserved, nor in
/// `used`. `commit` is any commit of the repository. Of two processes that ask at the same time, each gets its own name.
///
/// With `is_own` a branch of the repository with this name does not count: the caller goes on with it.
pub async fn reserve_branch(
    repository: &Repository,
    name: &str,
    is_own: bool,
    used: &[String],
    commit: &ObjectId,
) -> Result<String, ScmError> {
    let mut used = used.to_vec();
    let own = is_own.then_some(name);
    loop {
        let free = free_branch(repository, name, own, &used).await?;
        match repository.update_ref(&reservation(&free), commit, None).await {
            Err(ScmError::RefMoved { .. }) => used.push(free),
            reserved => return reserved.map(|()| free),
        }
    }
}

/// Gives a reservation up: the branch exists now.
pub async fn release_branch(repository: &Repository, name: &str) -> Result<(), ScmError> {
    repository.delete_ref(&reservation(name)).await
}

/// The ref that reserves a branch. A [`slug`] has no underscore, so no two branches share it, and none is a directory of
/// another. A dot would not do: git refuses names that end in `.lock`.
fn reservation(branch: &str) -> String {
    format!("refs/ralph/branches/{}", branch.replace('/', "_"))
}

/// Whether a ref is in the directory of another. Git keeps refs in directories: `a` and `a/b` exclude each other.
pub(super) fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// The first of `name`, `name-v2`, `name-v3`, ... that is neither a branch of the repository, except for `own`, nor in `used`.
pub async fn free_branch(
    repository: &Repository,
    name: &str,
    own: Option<&str>,
    used: &[String],
) -> Result<String, ScmError> {
    let top = name.split('/').next().unwrap_or(name);
    let command = repository
        .git
        .command("for-each-ref --format=%(refname:lstrip=2)")
        .arg(format!("refs/heads/{top}"));
    let printed = repository.git.run(&command).await?;
    let existing = String::from_utf8_lossy(&printed);
    if let Some(above) = existing.lines().find(|branch| is_below(name, branch)) {
        return Err(ScmError::BranchConflict {
            name: name.to_owned(),
            existing: above.to_owned(),
        });
    }
    let existing = existing.lines().filter(|branch| Some(*branch) != own);
    let taken: HashSet<&str> = existing.chain(used.iter().map(String::as_str)).collect();
    let is_free = |name: &str| !taken.contains(name) && !taken.iter().any(|branch| is_below(branch, name));
    let later = (2_u64..).map(|version| format!("{name}-v{version}"));
    let mut names = std::iter::once(name.to_owned()).chain(later);
    Ok(names
        .find(|name| is_free(name))
        .unwrap_or_else(|| name.to_owned()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("Fix the parser", "fix-the-parser")]
    #[case("  ..weird..name.lock ", "weird-name-lock")]
    #[case("Änderung @{u}: ~x^", "nderung-u-x")]
    #[case("日本語", "task")]
    #[case("-rf /", "rf")]
    #[case(&"long ".repeat(40), "long-long-long-long-long-long-long-long-long-lon")]
    fn a_title_becomes_part_of_a_ref(#[case] title: &str, #[case] expected: &str) {
        assert_eq!(slug(title), expected);
    }

    #[rstest]
    #[case("fix", true)]
    #[case("fix-v2", true)]
    #[case("fix-v10", true)]
    #[case("fix2", false)]
    #[case("fix-v1", false)]
    #[case("fix-vx", false)]
    #[case("fixes", false)]
    #[case("main", false)]
    fn a_version_of_a_branch_is_known(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_version(name, "fix"), expected);
    }

    #[test]
    fn a_branch_is_named_after_its_task() {
        assert_eq!(branch_name("ralph", "T-12", "Fix it!"), "ralph/t-12/fix-it");
        assert_eq!(branch_name("bots/ralph/", "a/b", ""), "bots/ralph/a-b");
        assert_eq!(
            branch_name("ralph/Task-001/", "task-001", "implement-foo"),
            "ralph/task-001/implement-foo"
        );
        assert_eq!(
            branch_name("ralph/task-0011", "task-001", "x"),
            "ralph/task-0011/task-001/x"
        );
        assert_eq!(branch_name("ralph", "ralph", ""), "ralph/ralph");
        assert_eq!(branch_name("bots/x/ralph", "x", "y"), "bots/x/ralph/x/y");
    }
}
