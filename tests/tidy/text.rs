//! Words that no text of the project may hold.

use crate::none;
use crate::repository::{self, File};

#[test]
fn nothing_is_left_for_later() {
    none(
        "marks of unfinished work",
        repository::files().iter().flat_map(unfinished).collect(),
    );
}

#[test]
fn no_test_is_switched_off() {
    none(
        "ignored tests",
        repository::files().iter().flat_map(ignored).collect(),
    );
}

#[test]
fn no_path_of_one_machine_is_written_down() {
    none(
        "paths that exist on one machine",
        repository::files().iter().flat_map(machine_paths).collect(),
    );
}

fn unfinished(file: &File) -> Vec<String> {
    // Spelled so that this file is not found.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let is_mark = |line: &str| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| marks.contains(&word))
    };
    find(file, is_mark)
}

fn ignored(file: &File) -> Vec<String> {
    let is_rust = file.extension() == Some("rs");
    find(file, |line| is_rust && line.trim_start().starts_with("#[ignore"))
}

/// Finds absolute paths into somebody's own folders. Those of nobody in particular, as examples use them, are fine.
fn machine_paths(file: &File) -> Vec<String> {
    let anybody = ["agent", "ralph", "user", "you"];
    let is_somebodys = |line: &str| {
        ["home", "Users", "work"].iter().any(|folder| {
            let start = format!("/{folder}/");
            let mut found = line.match_indices(&start);
            found.any(|(at, _)| {
                let inside_a_longer_path =
                    line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-$}*/".contains(c));
                let owner = line[at + start.len()..]
                    .split(|c: char| !c.is_alphanumeric())
                    .next();
                !inside_a_longer_path
                    && owner.is_some_and(|name| !name.is_empty() && !anybody.contains(&name))
            })
        })
    };
    find(file, is_somebodys)
}

fn find(file: &File, is_wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let lines = file.text.lines().enumerate().filter(|(_, line)| is_wrong(line));
    lines
        .map(|(index, line)| format!("{}:{}: {}", file.path, index + 1, line.trim()))
        .collect()
}

mod tests {
    use super::{ignored, machine_paths, unfinished};
    use crate::repository::File;

    #[track_caller]
    fn check(findings: fn(&File) -> Vec<String>, line: &str, wrong: bool) {
        let file = File {
            path: "a.rs".into(),
            text: line.into(),
        };
        assert_eq!(!findings(&file).is_empty(), wrong, "{line}");
    }

    #[test]
    fn marks_are_whole_words() {
        check(unfinished, concat!("// TO", "DO: later"), true);
        check(unfinished, concat!("mktemp ralph.XX", "XXXX"), false);
    }

    #[test]
    fn an_ignored_test_is_found_where_it_is_one() {
        check(ignored, "    #[ignore = \"slow\"]", true);
        check(ignored, "no `#[ignore]` here", false);
    }

    #[test]
    fn a_machine_is_told_by_its_folders() {
        check(machine_paths, concat!("see /ho", "me/alice/x"), true);
        check(machine_paths, concat!("`/wo", "rk/y/z`"), true);
        check(
            machine_paths,
            "/home/user/x, /home/agent/.cache, $dir/work/x, https://a.example/home/b",
            false,
        );
    }
}
