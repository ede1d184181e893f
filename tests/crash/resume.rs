//! `ralph resume` after files were torn or lost, of a run that is done, and of one that another process works on.

use std::fs::{self, OpenOptions};
use std::io::Write;

use rstest::rstest;

use crate::ending::{Ending, Owners, UNDISTURBED};
use crate::world::{SCRIPT, SLOW_SCRIPT, World, stderr_text};

/// What happens to a run's files while no process works on it.
type Harm = fn(&World);

#[rstest]
#[case::before_its_first_iteration(|_: &World| {}, 0)]
#[case::between_two_iterations(|_: &World| {}, 2)]
#[case::without_its_sandbox(lose_sandbox, 2)]
#[case::without_its_seed(|world: &World| fs::remove_dir_all(world.run_file("seed")).unwrap(), 2)]
#[case::without_its_run_files(|world: &World| fs::remove_dir_all(world.run_file("ralph")).unwrap(), 3)]
#[case::without_its_journal(|world: &World| fs::remove_file(world.run_file("journal.jsonl")).unwrap(), 3)]
fn a_killed_run_goes_on(#[case] harm: Harm, #[case] after: u32) {
    let event = if after == 0 {
        "run_started"
    } else {
        "iteration_ended"
    };
    let world = World::killed_at(SCRIPT, event, after.max(1));
    harm(&world);
    let output = world.resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_as(&UNDISTURBED.0);
}

fn lose_sandbox(world: &World) {
    fs::remove_dir_all(world.run_file("sandbox")).unwrap();
}

/// All that is left is the state ref in the user's repository.
#[rstest]
#[case::in_the_middle("iteration_ended", 2)]
#[case::with_complete_evidence("iteration_ended", 5)]
fn a_run_goes_on_after_everything_but_the_repository_was_lost(#[case] event: &str, #[case] times: u32) {
    let world = World::new(SCRIPT);
    let owners = Owners::of(&world);
    let mut ralph = world.go_on();
    assert!(ralph.wait_for(event, times), "{}", ralph.stderr());
    ralph.kill();
    let run = world.run_id();
    fs::remove_dir_all(world.home()).unwrap();
    let output = world.ralph(&["resume", &run]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_as(&UNDISTURBED.0);
    owners.assert_untouched(&world);
}

#[rstest]
#[case("journal.jsonl", "{\"seq\":99,\"at\":\"2026-")]
#[case("ralph/activity.log", "2026-01-01T00:00:00Z itera")]
#[case("ralph/errors.log", "[iteration 2] `sh te")]
#[case("events.jsonl", "{\"at\":\"2026-")]
fn a_torn_last_line_is_mended_and_said_so(#[case] file: &str, #[case] half: &str) {
    let world = World::killed_at(SCRIPT, "iteration_ended", 2);
    let path = world.run_file(file);
    // The kill may have torn a line by itself; whole lines come before ours.
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.rfind('\n').map_or(0, |end| end + 1)]).unwrap();
    OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(half.as_bytes())
        .unwrap();
    let output = world.resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    let name = path.file_name().unwrap().to_string_lossy();
    let said = format!("{name}: removed a torn last line of {} bytes", half.len());
    assert!(stderr_text(&output).contains(&said), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_as(&UNDISTURBED.0);
}

#[test]
fn a_torn_last_line_is_mended_and_said_so_before_the_first_checkpoint_too() {
    let world = World::killed_at(SCRIPT, "iteration_ended", 1);
    let state = format!("refs/ralph/{}/state", world.run_id());
    world.git(&["update-ref", "-d", &state]);
    fs::write(world.run_file("journal.jsonl"), "{\"seq\":1,").unwrap();
    let output = world.resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    let said = "journal.jsonl: removed a torn last line of 9 bytes";
    assert!(stderr_text(&output).contains(said), "{}", stderr_text(&output));
}

#[test]
fn a_run_without_its_state_ref_is_not_begun_again_in_silence() {
    let world = World::killed_at(SCRIPT, "iteration_ended", 2);
    let state = format!("refs/ralph/{}/state", world.run_id());
    world.git(&["update-ref", "-d", &state]);
    let refused = world.resume();
    assert_eq!(refused.status.code(), Some(1), "{}", stderr_text(&refused));
    let said = format!("`{state}` is gone from the repository, and with it the work of 2 iterations");
    assert!(stderr_text(&refused).contains(&said), "{}", stderr_text(&refused));
}

#[test]
fn a_note_survives_a_kill_in_the_iteration_that_reads_it() {
    let world = World::killed_at(SCRIPT, "iteration_ended", 1);
    let noted = world.ralph(&["note", "mind the rounding"]);
    assert_eq!(noted.status.code(), Some(0), "{}", stderr_text(&noted));
    let mut ralph = world.go_on();
    assert!(ralph.wait_for("model_answered", 1), "{}", ralph.stderr());
    ralph.kill();
    let output = world.resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    for file in [
        "ralph/notes.md",
        "ralph/iterations/2/prompt.md",
        "ralph/iterations/5/prompt.md",
    ] {
        let text = fs::read_to_string(world.run_file(file)).unwrap();
        assert_eq!(text.matches("mind the rounding").count(), 1, "{file}:\n{text}");
    }
}

#[test]
fn a_done_run_says_so_and_stays_as_it_is() {
    let world = World::new(SCRIPT);
    let owners = Owners::of(&world);
    let mut ralph = world.go_on();
    assert_eq!(ralph.finish().code(), Some(0), "{}", ralph.stderr());
    let journal = fs::read(world.run_file("journal.jsonl")).unwrap();
    let output = world.resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    assert!(
        stderr_text(&output).contains("already done"),
        "{}",
        stderr_text(&output)
    );
    assert_eq!(fs::read(world.run_file("journal.jsonl")).unwrap(), journal);
    let status = world.ralph(&["status", "--json", &world.run_id()]);
    let rows: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(rows[0]["state"], "done");
    owners.assert_untouched(&world);
}

#[test]
fn a_run_with_a_live_owner_is_refused_and_the_owner_is_named() {
    let world = World::new(SLOW_SCRIPT);
    let mut ralph = world.go_on();
    assert!(ralph.wait_for("action", 1), "{}", ralph.stderr());
    let refused = world.resume();
    assert_eq!(refused.status.code(), Some(1), "{}", stderr_text(&refused));
    let owner = format!("is being worked on by process {} on ", ralph.id());
    assert!(
        stderr_text(&refused).contains(&owner),
        "{}",
        stderr_text(&refused)
    );
    assert!(
        stderr_text(&refused).contains("hint: "),
        "{}",
        stderr_text(&refused)
    );
    // The one at work does not notice.
    ralph.signal("INT");
    assert_eq!(ralph.finish().code(), Some(3), "{}", ralph.stderr());
}
