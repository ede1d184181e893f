//! Names in a task file. They are checked once, here, because they become part of branch names and reports.

use crate::id::checked_text;

checked_text! {
    /// The id of a task. Safe as a component of a branch name and as a file name.
    TaskId: is_branch_part,
    "1 to 64 letters, digits, `-`, `_` or single `.`, beginning and ending with a letter or digit"
}

checked_text! {
    /// The last component of a run's branch name.
    Slug: is_branch_part,
    "1 to 64 letters, digits, `-`, `_` or single `.`, beginning and ending with a letter or digit"
}

checked_text! {
    /// A branch name, or a prefix of one, that git accepts and does not interpret as an option.
    BranchName: is_branch,
    "a branch name that git accepts"
}

checked_text! {
    /// The id of a checkbox, for example `M1.1`.
    CheckboxId: is_label,
    "an id such as `M1.1`: a capital letter, letters and at least one digit, then numbers after dots"
}

checked_text! {
    /// The id of a milestone, for example `M1`.
    MilestoneId: is_label,
    "an id such as `M1`: a capital letter, letters and at least one digit, then numbers after dots"
}

impl CheckboxId {
    /// The id of the `number`th checkbox without an id in the text.
    pub(super) fn generated(number: usize) -> Self {
        Self(format!("C{number}"))
    }
}

const LONGEST_PART: usize = 64;

fn is_branch_part(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    text.len() <= LONGEST_PART
        && text.bytes().all(allowed)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && is_branch(text)
}

/// The rules of `git check-ref-format --branch`. `.LOCK` counts as `.lock`, as on case-insensitive file systems.
fn is_branch(text: &str) -> bool {
    let part_is_fine = |part: &str| {
        let locked = part
            .rsplit_once('.')
            .is_some_and(|(_, end)| end.eq_ignore_ascii_case("lock"));
        !part.is_empty() && !part.starts_with('.') && !locked
    };
    let forbidden = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    !text.starts_with('-')
        && !text.ends_with('.')
        && !text.contains("..")
        && !text.contains("@{")
        && !matches!(text, "@" | "HEAD")
        && !text.contains(forbidden)
        && text.split('/').all(part_is_fine)
}

/// The digit is required because otherwise every capitalised first word would be an id.
fn is_label(text: &str) -> bool {
    let mut parts = text.split('.');
    let word = parts.next().unwrap_or_default();
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.bytes().all(|b| b.is_ascii_alphanumeric())
        && parts.all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
        && text.contains(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("fix-login")]
    #[case("ISSUE_42")]
    #[case("v1.2")]
    fn a_task_id_may_be(#[case] text: &str) {
        assert_eq!(TaskId::parse(text).unwrap().as_str(), text);
    }

    #[rstest]
    #[case("")]
    #[case("a b")]
    #[case("a/b")]
    #[case("../x")]
    #[case("a..b")]
    #[case("-rf")]
    #[case("a.")]
    #[case("a.lock")]
    #[case("HEAD")]
    #[case("ünï")]
    #[case("a\n")]
    fn a_task_id_may_not_be(#[case] text: &str) {
        assert!(TaskId::parse(text).is_err(), "{text:?} was taken");
        assert!(Slug::parse(text).is_err(), "{text:?} was taken");
    }

    #[test]
    fn a_task_id_is_not_endless() {
        assert!(TaskId::parse(&"a".repeat(64)).is_ok());
        assert!(TaskId::parse(&"a".repeat(65)).is_err());
    }

    #[rstest]
    #[case("main", true)]
    #[case("release/1.0", true)]
    #[case("feature/ünï", true)]
    #[case("--upload-pack=x", false)]
    #[case("a//b", false)]
    #[case("/a", false)]
    #[case("a/", false)]
    #[case("a/.b", false)]
    #[case("a.lock/b", false)]
    #[case("a b", false)]
    #[case("a~1", false)]
    #[case("a@{1}", false)]
    #[case("@", false)]
    fn a_branch_name_is_one_that_git_takes(#[case] text: &str, #[case] taken: bool) {
        assert_eq!(BranchName::parse(text).is_ok(), taken, "{text}");
    }

    #[rstest]
    #[case("M1", true)]
    #[case("M1.1", true)]
    #[case("Api2.10.3", true)]
    #[case("Api.2", true)]
    #[case("Add", false)]
    #[case("m1", false)]
    #[case("M1.", false)]
    #[case("M1.a", false)]
    #[case("M-1", false)]
    #[case("", false)]
    fn a_checkbox_id_begins_with_a_capital_and_holds_a_digit(#[case] text: &str, #[case] taken: bool) {
        assert_eq!(CheckboxId::parse(text).is_ok(), taken, "{text}");
    }
}
