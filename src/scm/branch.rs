//! The name of a run's branch.

use std::collections::HashSet;

use super::error::ScmError;
use super::repository::Repository;

/// The longest component, in bytes. Longer ones are cut.
const LONGEST_PART: usize = 48;

/// `<prefix>/<task id>/<title>`, each component as a [`slug`].
#[must_use]
pub fn branch_name(prefix: &str, task_id: &str, title: &str) -> String {
    let parts = prefix.split('/').chain([task_id, title]);
    parts
        .filter(|part| !part.is_empty())
        .map(slug)
        .collect::<Vec<_>>()
        .join("/")
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

/// The first of `name`, `name-v2`, `name-v3`, ... that is neither a branch of the repository nor used by another run.
pub async fn free_branch(repository: &Repository, name: &str, used: &[String]) -> Result<String, ScmError> {
    let top = name.split('/').next().unwrap_or(name);
    let command = repository
        .git
        .command("for-each-ref --format=%(refname:lstrip=2)")
        .arg(format!("refs/heads/{top}"));
    let printed = repository.git.run(&command).await?;
    let existing = String::from_utf8_lossy(&printed);
    let taken: HashSet<&str> = existing.lines().chain(used.iter().map(String::as_str)).collect();
    let later = (2_u64..).map(|version| format!("{name}-v{version}"));
    let mut names = std::iter::once(name.to_owned()).chain(later);
    Ok(names
        .find(|name| !taken.contains(name.as_str()))
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

    #[test]
    fn a_branch_is_named_after_its_task() {
        assert_eq!(branch_name("ralph", "T-12", "Fix it!"), "ralph/t-12/fix-it");
        assert_eq!(branch_name("bots/ralph/", "a/b", ""), "bots/ralph/a-b");
    }
}
