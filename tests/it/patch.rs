//! Diffs as the real git writes them.

use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ralph::agent::actions::{Patch, PatchedFile, RelPath};

use crate::need;
use crate::support::skip;

const CASES: u32 = 150;

#[test]
fn what_git_diff_writes_applies_to_the_old_file_and_gives_the_new_one() {
    let git = need!(skip::program("git"));
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(CASES)
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let cases = (file(), file(), 1..4_u8);
    let file_name = RelPath::parse("x ü").unwrap();
    let checked = runner.run(&cases, |(old, new, around)| {
        prop_assume!(old != new);
        let diff = git_diff(&git, dir.path(), (old.as_deref(), new.as_deref()), around);
        let patch = Patch::parse(&diff).map_err(|error| TestCaseError::fail(format!("{error}\n{diff}")))?;
        prop_assert_eq!(patch.check_names(&file_name), Ok(()));
        let applied = patch
            .apply(old.as_deref().map(str::as_bytes))
            .map_err(|error| TestCaseError::fail(format!("{error}\n{diff}")))?;
        let expected = new.map_or(PatchedFile::Deleted, |new| PatchedFile::Content(new.into_bytes()));
        prop_assert_eq!(applied, expected);
        Ok(())
    });
    checked.unwrap();
}

/// A file of few different lines, so that old and new have much in common; `None` is one that is not there.
fn file() -> impl Strategy<Value = Option<String>> {
    let line = prop_oneof![
        4 => Just("a\n"),
        3 => Just("b\n"),
        2 => Just("\n"),
        1 => Just("-- c\n"),
        1 => Just("++ d\n"),
        1 => Just("@@ -1 +1 @@\n"),
        1 => Just("\\ No newline at end of file\n"),
        1 => Just("ü\r\n"),
        1 => Just(" \n"),
    ];
    let text = (proptest::collection::vec(line, 0..25), any::<bool>()).prop_map(|(lines, ends)| {
        let text = lines.concat();
        if ends {
            text
        } else {
            text.trim_end_matches('\n').to_owned()
        }
    });
    proptest::option::weighted(0.9, text)
}

/// The diff from one file to another, which is named `x ü` on both sides.
fn git_diff(git: &Path, dir: &Path, (old, new): (Option<&str>, Option<&str>), around: u8) -> String {
    let side = |name: &str, content: Option<&str>| {
        let Some(content) = content else {
            return "/dev/null".to_owned();
        };
        fs::create_dir_all(dir.join(name)).unwrap();
        fs::write(dir.join(name).join("x ü"), content).unwrap();
        format!("{name}/x ü")
    };
    let (old, new) = (side("a", old), side("b", new));
    let output = Command::new(git)
        .args(["diff", "--no-index", "--no-prefix", "--no-color", "--no-ext-diff"])
        .args([format!("-U{around}"), "--".to_owned(), old, new])
        .current_dir(dir)
        .env_clear()
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
