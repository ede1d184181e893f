//! The steps of a session.

use std::time::Duration;

use super::*;
use crate::agent::{Agent, Done, Ending, ProgramAgent, Session, Step};
use crate::exec::{Captured, Command, Exit, Status, Streams};

fn exited(status: Status, printed: &str) -> Done {
    let capture = |text: &str| {
        let mut captured = Captured::with_limit(1 << 20);
        captured.push(text.as_bytes());
        captured
    };
    Done::Exited(Exit {
        status,
        duration: Duration::ZERO,
        stdout: capture(printed),
        stderr: capture(""),
        streams: Streams::Closed,
    })
}

fn command(step: Step) -> Command {
    match step {
        Step::Exec(command) => command,
        other => panic!("no command: {other:?}"),
    }
}

fn ending(step: Step) -> Ending {
    match step {
        Step::Finish(outcome) => outcome.ending,
        other => panic!("not finished: {other:?}"),
    }
}

/// A session of codex that runs.
fn running() -> Box<dyn Session> {
    let mut session = ProgramAgent::new(codex()).session(&brief());
    assert!(matches!(session.next(Done::Nothing), Step::Write(files) if files.len() == 1));
    assert_eq!(command(session.next(Done::Written)).program, "codex");
    session
}

const STARTED: &str = r#"{"type":"thread.started","thread_id":"01a1-b2"}"#;
const FAILED: &str = r#"{"type":"turn.failed","error":{"message":"no"}}"#;
const EXPLAINED: &str =
    r#"{"type":"event_msg","payload":{"type":"task_complete","error":{"codex_error_info":"unauthorized"}}}"#;

#[test]
fn files_come_first_then_the_command_then_the_end() {
    let mut session = running();
    let whole = format!("{STARTED}\n{}", r#"{"type":"turn.completed","usage":{}}"#);
    assert_eq!(
        ending(session.next(exited(Status::Code(0), &whole))),
        Ending::Continue
    );
}

#[test]
fn a_program_without_files_is_started_at_once() {
    let mut session = ProgramAgent::new(claude()).session(&brief());
    assert_eq!(command(session.next(Done::Nothing)).program, "claude");
}

#[test]
fn why_codex_failed_is_looked_up_in_its_own_file() {
    let mut session = running();
    let look_up = session.next(exited(Status::Code(1), &format!("{STARTED}\n{FAILED}")));
    assert_eq!(
        command(look_up).to_string(),
        "find /box/agent/sessions -type f -name '*01a1-b2.jsonl' -exec tail -n 20 '{}' ';'"
    );
    let failed = session.next(exited(Status::Code(0), EXPLAINED));
    assert!(matches!(failed, Step::Fail(_)), "{failed:?}");
}

#[test]
fn an_id_that_is_none_is_not_looked_up() {
    let mut session = running();
    let hostile = STARTED.replace("01a1-b2", "x -delete");
    let step = session.next(exited(Status::Code(1), &format!("{hostile}\n{FAILED}")));
    assert!(matches!(ending(step), Ending::Unusable { .. }));
}

#[test]
fn a_session_that_was_killed_asks_for_a_fresh_one() {
    let step = running().next(exited(Status::Idle, STARTED));
    assert!(matches!(ending(step), Ending::Rotate { .. }));
}

#[test]
fn a_session_that_is_told_out_of_turn_ends() {
    let step = running().next(Done::Written);
    assert!(matches!(ending(step), Ending::Unusable { .. }));
}

#[test]
fn what_was_printed_so_far_tells_what_was_used() {
    let mut printed = Captured::with_limit(1 << 20);
    printed.push(br#"{"type":"turn.completed","usage":{"input_tokens":5,"output_tokens":1}}"#);
    let spent = running().spent(&printed).unwrap();
    assert_eq!(spent.tokens.unwrap().total(), 6);
}
