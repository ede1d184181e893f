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
fn no_path_of_one_machine_is_written_down() {
    none(
        "paths that exist on one machine",
        repository::files().iter().flat_map(machine_paths),
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

fn machine_paths(file: &File) -> Vec<String> {
    find(file, |line| {
        ["/home/", "/Users/", "/work/"]
            .iter()
            .any(|folder| leads_into(folder, line))
    })
}

/// Whether an absolute path leads into somebody's own folder. Those of nobody in particular, as examples use them, are
/// fine.
fn leads_into(folder: &str, line: &str) -> bool {
    let nobody = ["", "agent", "ralph", "user", "you"];
    line.match_indices(folder).any(|(at, _)| {
        let is_relative = line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-$}*/".contains(c));
        let owner = line[at + folder.len()..]
            .split(|c: char| !c.is_alphanumeric())
            .next();
        !is_relative && owner.is_some_and(|name| !nobody.contains(&name))
    })
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
