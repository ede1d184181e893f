//! What an iteration decided holds, also when ralph is killed before the run came to its end.

use std::fs;

use rstest::rstest;

use crate::world::{World, stderr_text};

/// How often a kill is tried: it must fall between the record and the end of the run.
const TRIES: u32 = 40;

#[rstest]
#[case::paused("pause", 3, "paused")]
#[case::failed("stop_failure", 1, "failed")]
fn a_run_that_was_to_end_ends_when_it_is_taken_up(
    #[case] action: &str,
    #[case] code: i32,
    #[case] outcome: &str,
) {
    let answer = format!("{{summary: Ask., actions: [{{type: {action}, reason: nothing works}}]}}");
    let script = format!("iterations:\n  - - answer: {answer}\n      cost_usd: 0\nthen: repeat\n");
    for _ in 0..TRIES {
        let world = World::killed_at(&script, "iteration_ended", 1);
        let journal = || fs::read_to_string(world.run_file("journal.jsonl")).unwrap();
        if journal().contains(r#""entry":"ended""#) {
            continue;
        }
        let output = world.resume();
        assert_eq!(output.status.code(), Some(code), "{}", stderr_text(&output));
        assert_eq!(
            journal().matches(r#""entry":"recorded""#).count(),
            1,
            "{}",
            journal()
        );
        assert!(
            journal().contains(&format!(r#""outcome":"{outcome}""#)),
            "{}",
            journal()
        );
        return;
    }
    panic!("no kill fell between the record and the end in {TRIES} tries");
}
