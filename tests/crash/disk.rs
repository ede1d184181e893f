//! A disk that is full, and has room again.

use std::fs;

use ::support::small_disk::SmallDisk;

use crate::ending::{Ending, Owners, UNDISTURBED};
use crate::need;
use crate::world::{SCRIPT, World, stderr_text};

/// Fills the disk in the third iteration, out of the agent's hands.
const GREEDY: (&str, &str) = (
    "command: sh test.sh",
    "command: sh test.sh; head -c 192M /dev/zero >\"$TMPDIR/filler\"; true",
);

#[test]
fn too_little_room_is_reported_before_anything_begins() {
    let world = World::new(SCRIPT);
    let disk = need!(SmallDisk::mount(&world.home(), "16m"));
    let mut ralph = world.go_on();
    assert_eq!(ralph.finish().code(), Some(1), "{}", ralph.stderr());
    let (run, error) = (world.run_dir().unwrap(), ralph.stderr());
    let why = format!("MB are free at `{}`, at least 64 MB are needed", run.display());
    assert!(
        error.contains("ralph: not ready to begin: disk space: ")
            && error.contains(&why)
            && error.contains("hint: free some disk space, then run `ralph resume`"),
        "{error}"
    );
    disk.resize("512m");
    let output = world.resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_result_as(&UNDISTURBED.0);
}

#[test]
fn a_run_whose_disk_the_agent_fills_says_so_and_goes_on_once_there_is_room() {
    let world = World::new(&SCRIPT.replace(GREEDY.0, GREEDY.1));
    let disk = need!(SmallDisk::mount(&world.home(), "128m"));
    let owners = Owners::of(&world);
    let mut ralph = world.go_on();
    assert_eq!(ralph.finish().code(), Some(1), "{}", ralph.stderr());
    let home = world.home().display().to_string();
    let error = ralph.stderr();
    let error = error
        .lines()
        .find(|line| line.starts_with("ralph: "))
        .unwrap_or(&error);
    assert!(
        error.contains("No space left on device") && error.contains(&home),
        "{error}"
    );
    let run = world.run_dir().unwrap();
    let id = run.file_name().unwrap().to_string_lossy();
    let hint = format!("hint: free some space on the disk, then `ralph resume {id}`");
    assert_eq!(ralph.stderr().lines().last(), Some(&*hint));
    disk.resize("512m");
    let output = world.resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_result_as(&UNDISTURBED.0);
    owners.assert_untouched(&world);
}

#[test]
fn a_run_whose_files_find_no_room_says_so_and_goes_on_once_there_is() {
    let world = World::new(SCRIPT);
    let disk = need!(SmallDisk::mount(&world.home(), "128m"));
    let mut ralph = world.go_on();
    assert!(ralph.wait_for("iteration_ended", 2), "{}", ralph.stderr());
    ralph.kill();
    let filler = disk.fill();
    let output = world.resume();
    assert_eq!(output.status.code(), Some(1), "{}", stderr_text(&output));
    let run = world.run_dir().unwrap().display().to_string();
    let error = stderr_text(&output);
    assert!(
        error.contains("No space left on device") && error.contains(&run),
        "{error}"
    );
    let hint = "hint: free some space on the disk, then ";
    assert!(
        error.lines().last().is_some_and(|last| last.starts_with(hint)),
        "{error}"
    );
    fs::remove_file(filler).unwrap();
    let output = world.resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_as(&UNDISTURBED.0);
}

#[test]
fn a_repository_without_room_ends_the_run_with_the_reason_and_stays_whole() {
    let elsewhere = tempfile::tempdir().unwrap();
    let disk = need!(SmallDisk::mount(elsewhere.path(), "4m"));
    let world = World::with_repo_in(SCRIPT, elsewhere.path());
    let owners = Owners::of(&world);
    let mut ralph = world.go_on();
    assert!(ralph.wait_for("iteration_ended", 2), "{}", ralph.stderr());
    ralph.kill();
    let filler = disk.fill();
    let output = world.resume();
    assert_eq!(output.status.code(), Some(1), "{}", stderr_text(&output));
    let repo = world.repo().display().to_string();
    let error = stderr_text(&output);
    assert!(
        error.contains("Out of diskspace") && error.contains(&repo),
        "{error}"
    );
    fs::remove_file(filler).unwrap();
    let output = world.resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_as(&UNDISTURBED.0);
    owners.assert_intact(&world);
}
