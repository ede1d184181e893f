//! The workflows of this repository: pinned actions, few permissions, and nothing in them that is not a script here.

use super::none;
use super::repository::{File, files, root, text};

/// The workflows that there must be.
const EXPECTED: [&str; 5] = ["macos", "nightly", "nix", "release", "tests"];

fn workflows() -> Vec<File> {
    let found: Vec<File> = files()
        .into_iter()
        .filter(|file| file.path.starts_with(".github/workflows/"))
        .collect();
    let names: Vec<String> = EXPECTED
        .iter()
        .map(|name| format!(".github/workflows/{name}.yml"))
        .collect();
    let paths: Vec<&String> = found.iter().map(|file| &file.path).collect();
    assert_eq!(paths, names.iter().collect::<Vec<_>>());
    found
}

/// The lines of all workflows that a check finds fault with.
fn faults(find: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let fault = |file: &File| -> Vec<String> {
        let lines = file.text.lines().enumerate();
        lines
            .filter_map(|(at, line)| Some(format!("{}:{}: {}", file.path, at + 1, find(line.trim())?)))
            .collect()
    };
    workflows().iter().flat_map(fault).collect()
}

#[test]
fn every_action_is_pinned_by_its_commit() {
    none("actions that may change", faults(unpinned));
}

/// An action is `owner/name@` with a whole commit, and its version in a comment.
fn unpinned(line: &str) -> Option<String> {
    let action = line.trim_start_matches("- ").strip_prefix("uses: ")?;
    let (reference, version) = action.split_once(" # v").unwrap_or((action, ""));
    let (_, commit) = reference.split_once('@').unwrap_or((reference, ""));
    let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    (!is_commit || version.is_empty()).then(|| action.to_owned())
}

#[test]
fn every_command_is_a_script_of_this_repository() {
    none(
        "commands that `.ci/run` does not share",
        faults(|line| {
            let command = line.trim_start_matches("- ").strip_prefix("run: ")?;
            let script = command.split(' ').next()?;
            let is_script = script.starts_with(".ci/") && root().join(script).is_file();
            (!is_script).then(|| command.to_owned())
        }),
    );
}

#[test]
fn a_workflow_may_read_the_repository_and_a_release_more() {
    for workflow in workflows() {
        let at_top = "\npermissions:\n  contents: read\n\n";
        assert!(workflow.text.contains(at_top), "{}", workflow.path);
        let writes = workflow.text.contains(": write");
        assert_eq!(
            writes,
            workflow.path.ends_with("/release.yml"),
            "{}",
            workflow.path
        );
        let count = |part: &str| workflow.text.matches(part).count();
        let path = &workflow.path;
        assert_eq!(
            count("runs-on:"),
            count("timeout-minutes:"),
            "{path}: a job has no limit"
        );
        assert_eq!(
            count("uses: actions/checkout@"),
            count("persist-credentials: false"),
            "{path}: a checkout keeps its token"
        );
    }
}

/// `cargo binstall` finds the archives that a release has.
#[test]
fn the_manifest_names_the_archives_of_a_release() {
    let manifest = text("Cargo.toml");
    let release = text(".ci/release");
    assert!(release.contains("local name=ralph-$version-$1 "));
    assert!(release.contains("dist/$name.tar.gz"));
    for part in [
        "\nrepository = \"https://",
        "pkg-url = \"{ repo }/releases/download/v{ version }/ralph-{ version }-{ target }.tar.gz\"",
        "bin-dir = \"ralph-{ version }-{ target }/{ bin }{ binary-ext }\"",
    ] {
        assert!(manifest.contains(part), "{part}");
    }
}

mod tests {
    #[test]
    fn a_branch_or_a_tag_is_no_commit() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(super::unpinned(&format!("- uses: a/b@{hash} # v1.2.3")), None);
        assert_eq!(super::unpinned("- run: .ci/run"), None);
        for action in ["a/b@v1", "a/b@main # v1", "a/b"] {
            assert!(
                super::unpinned(&format!("- uses: {action}")).is_some(),
                "{action}"
            );
        }
        assert!(super::unpinned(&format!("uses: a/b@{hash}")).is_some());
    }
}
