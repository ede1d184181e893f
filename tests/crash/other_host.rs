//! A run that another host takes over. The two share nothing but the repository.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use crate::ending::{Ending, UNDISTURBED};
use crate::need;
use crate::world::{SCRIPT, SLOW_SCRIPT, World, stderr_text};

#[test]
fn while_its_lease_lasts_a_run_is_refused_elsewhere() {
    need!(other_host());
    let world = World::killed_at(SCRIPT, "iteration_ended", 2);
    let run = move_away(&world);
    let refused = resume_elsewhere(&world, &run);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr_text(&refused));
    let here = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let owner = format!(" on {} until 2", here.trim());
    assert!(
        stderr_text(&refused).contains(&owner),
        "{}",
        stderr_text(&refused)
    );
    assert!(!world.run_file("sandbox").exists());
}

#[test]
fn once_its_lease_is_over_a_run_goes_on_elsewhere() {
    need!(other_host());
    let world = World::killed_at(SCRIPT, "iteration_ended", 2);
    let run = move_away(&world);
    expire_lease(&world, &run);
    let output = resume_elsewhere(&world, &run);
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_as(&UNDISTURBED.0);
}

#[test]
fn a_run_that_was_stopped_goes_on_elsewhere_at_once() {
    need!(other_host());
    let world = World::new(SCRIPT);
    let mut ralph = world.go_on();
    assert!(ralph.wait_for("iteration_ended", 2), "{}", ralph.stderr());
    ralph.signal("INT");
    assert_eq!(ralph.finish().code(), Some(3), "{}", ralph.stderr());
    let run = move_away(&world);
    let output = resume_elsewhere(&world, &run);
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_result_as(&UNDISTURBED.0);
}

/// From the moment it is taken up, not only from its first iteration on.
#[test]
fn a_run_that_was_taken_over_is_refused_where_it_began() {
    need!(other_host());
    let world = World::killed_at(SLOW_SCRIPT, "action", 1);
    let (run, first_home) = (world.run_id(), set_aside(&world));
    expire_lease(&world, &run);
    let mut there =
        world.start_command(&mut world.command("unshare", &elsewhere(&["resume", "--json", &run])));
    assert!(there.wait_for("run_resumed", 1), "{}", there.stderr());
    fs::rename(world.home(), world.path().join("second")).unwrap();
    fs::rename(&first_home, world.home()).unwrap();
    let refused = world.resume();
    assert_eq!(refused.status.code(), Some(1), "{}", stderr_text(&refused));
    assert!(
        stderr_text(&refused).contains(" on elsewhere until 2"),
        "{}",
        stderr_text(&refused)
    );
}

/// The first host returns with journal lines of its own after the last checkpoint that it saved.
#[test]
fn a_run_comes_back_to_the_host_that_began_it() {
    need!(other_host());
    let world = World::killed_at(SCRIPT, "model_answered", 3);
    let (run, first_home) = (world.run_id(), set_aside(&world));
    expire_lease(&world, &run);
    let mut there =
        world.start_command(&mut world.command("unshare", &elsewhere(&["resume", "--json", &run])));
    assert!(there.wait_for("iteration_ended", 2), "{}", there.stderr());
    there.kill();
    fs::remove_dir_all(world.home()).unwrap();
    fs::rename(&first_home, world.home()).unwrap();
    expire_lease(&world, &run);
    let output = world.resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_as(&UNDISTURBED.0);
}

/// Whether this host can pretend to be another one.
fn other_host() -> Result<(), String> {
    let world = World::new(SLOW_SCRIPT);
    let tried = world
        .command("unshare", &["--uts", "hostname", "elsewhere"])
        .output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "`unshare --uts` does not work: {}",
            stderr_text(&output).trim()
        )),
        Err(error) => Err(format!("`unshare` cannot be run: {error}")),
    }
}

/// Removes the files of the first host. Only the repository is left.
fn move_away(world: &World) -> String {
    let run = world.run_id();
    fs::remove_dir_all(world.home()).unwrap();
    run
}

/// Moves the files of the first host to where the second one does not see them.
fn set_aside(world: &World) -> PathBuf {
    let first = world.path().join("first");
    fs::rename(world.home(), &first).unwrap();
    first
}

fn resume_elsewhere(world: &World, run: &str) -> Output {
    world
        .command("unshare", &elsewhere(&["resume", run]))
        .output()
        .unwrap()
}

fn elsewhere<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let renamed = "hostname elsewhere && exec \"$0\" \"$@\"";
    [&["--uts", "sh", "-c", renamed, env!("CARGO_BIN_EXE_ralph")], args].concat()
}

/// Puts the lease's end into the past, as if the time had gone by.
fn expire_lease(world: &World, run: &str) {
    let state = format!("refs/ralph/{run}/state");
    let lease: serde_json::Value =
        serde_json::from_str(&world.git(&["show", &format!("{state}:lease.json")])).unwrap();
    let mut past = lease;
    past["until"] = "2020-01-01T00:00:00Z".into();
    let file = world.path().join("lease.json");
    fs::write(&file, past.to_string()).unwrap();
    let index = world.path().join("lease.index");
    let git = |args: &[&str]| {
        let output = world
            .command("git", args)
            .env("GIT_INDEX_FILE", &index)
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {}", stderr_text(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let blob = git(&["hash-object", "-w", file.to_str().unwrap()]);
    git(&["read-tree", &state]);
    git(&[
        "update-index",
        "--cacheinfo",
        &format!("100644,{blob},lease.json"),
    ]);
    let tree = git(&["write-tree"]);
    let message = git(&["log", "-1", "--format=%B", &state]);
    let parents = git(&["log", "-1", "--format=%P", &state]);
    let parents: Vec<&str> = parents.split(' ').flat_map(|id| ["-p", id]).collect();
    let commit = git(&[&["commit-tree", &tree, "-m", &message], parents.as_slice()].concat());
    git(&["update-ref", &state, &commit]);
    fs::remove_file(index).unwrap();
}
