//! Words that no text of the project may hold.

use crate::none;
use crate::repository::{self, File};

#[test]
fn nothing_is_left_for_later() {
    none(
        "marks of unfinished work",
        repository::files().iter().flat_map(unfinished),
    );
}

#[test]
fn no_test_is_switched_off() {
    none("ignored tests", repository::files().iter().flat_map(ignored));
}

#[test]
fn no_local_path_is_written_down() {
    none(
        "paths that exist on one computer",
        repository::files().iter().flat_map(local_paths),
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

fn local_paths(file: &File) -> Vec<String> {
    find(file, |line| {
        ["/home/", "/Users/", "/work/"]
            .iter()
            .any(|folder| leads_into(folder, line))
    })
}

/// Whether an absolute path leads into the folder of a user. The users that examples name are fine.
fn leads_into(folder: &str, line: &str) -> bool {
    let example_users = ["", "agent", "ralph", "user", "you"];
    line.match_indices(folder).any(|(at, _)| {
        let is_relative = line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-$}*/".contains(c));
        let owner = line[at + folder.len()..]
            .split(|c: char| !c.is_alphanumeric())
            .next();
        !is_relative && owner.is_some_and(|name| !example_users.contains(&name))
    })
}

fn find(file: &File, is_wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let lines = file.text.lines().enumerate().filter(|(_, line)| is_wrong(line));
    lines
        .map(|(index, line)| format!("{}:{}: {}", file.path, index + 1, line.trim()))
        .collect()
}

mod tests {
    use super::{ignored, local_paths, unfinished};
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
    fn a_local_path_is_recognised_by_its_folder() {
        check(local_paths, concat!("see /ho", "me/alice/x"), true);
        check(local_paths, concat!("`/wo", "rk/y/z`"), true);
        check(
            local_paths,
            "/home/user/x, /home/agent/.cache, $dir/work/x, https://a.example/home/b",
            false,
        );
    }
}
