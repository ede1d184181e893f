//! Directories that cannot be written are refused before a run is created.

use std::fs;

use rstest::rstest;

use crate::support::ralph::{Place, TASK, doing, finish, script, whole_task};

#[rstest]
#[case::data("RALPH_HOME", "a-file/ralph", &["the data directory `", "a-file/ralph/runs` cannot be written: ", "set RALPH_HOME"])]
#[case::temporary("TMPDIR", "missing", &["the temporary directory `", "missing` cannot be written: ", "set TMPDIR"])]
#[case::temporary_file("TMPDIR", "a-file", &["a-file` cannot be written: ", "set TMPDIR"])]
fn a_directory_that_cannot_be_written_is_named(
    #[case] variable: &str,
    #[case] path: &str,
    #[case] said: &[&str],
) {
    let place = Place::new();
    fs::write(place.path().join("a-file"), "").unwrap();
    let steps = script([whole_task()]);
    let mut command = place.scripted(&steps, &[]);
    let ended = finish(command.env(variable, place.path().join(path)));
    ended.expect_refused(&[&["hint: "], said].concat());
    assert!(place.runs().is_empty());
    assert_eq!(
        place.git(&["for-each-ref", "refs/ralph"]),
        "",
        "no branch is reserved"
    );
}

#[test]
fn a_cache_that_cannot_be_written_is_named_where_it_is_needed() {
    let place = Place::new();
    fs::write(place.home().join("cache"), "").unwrap();
    let steps = script([whole_task()]);
    place.run_script(&steps).expect(0, &["done: "]);
    let url = format!("repo_url: file://{}\ntest_command", place.repo().display());
    place.write("ralph_task.md", &TASK.replace("test_command", &url));
    let ended = place.run_script(&steps);
    ended.expect_refused(&[
        "the cache `",
        "/cache` cannot be written: ",
        "hint: ",
        "XDG_CACHE_HOME",
    ]);
}

#[test]
fn a_resume_is_checked_too_and_keeps_the_state_of_the_run() {
    let place = Place::new();
    finish(&mut place.scripted(&script([doing([])]), &["--max-iterations", "1"])).expect(1, &["failed: "]);
    let ended = finish(place.ralph(&["resume"]).env("TMPDIR", "/missing"));
    ended.expect_refused(&["the temporary directory `/missing` cannot be written: "]);
    assert_eq!(place.status()["state"], "failed");
}
