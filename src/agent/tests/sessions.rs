//! The steps of a session.

use std::time::Duration;

use super::*;
use crate::agent::{Agent, AgentConclusion, AgentSession, AgentStep, ProgramAgent, StepResult};
use crate::exec::{CapturedOutput, Command, Exit, ExitStatus};

fn exited(status: ExitStatus, printed: &str) -> StepResult {
    let capture = |text: &str| {
        let mut captured = CapturedOutput::with_limit(1 << 20);
        captured.push(text.as_bytes());
        captured
    };
    StepResult::Exited(Exit {
        status,
        duration: Duration::ZERO,
        stdout: capture(printed),
        stderr: capture(""),
        streams_held: false,
    })
}

fn command(step: AgentStep) -> Command {
    match step {
        AgentStep::Exec(command) => command,
        other => panic!("no command: {other:?}"),
    }
}

fn conclusion(step: AgentStep) -> AgentConclusion {
    match step {
        AgentStep::Finish(outcome) => outcome.conclusion,
        other => panic!("not finished: {other:?}"),
    }
}

/// A session of codex that is running.
fn running() -> Box<dyn AgentSession> {
    let mut session = ProgramAgent::new(codex(), access(None, AuthMethod::ApiKey)).session(&brief());
    assert!(matches!(session.next(StepResult::Started), AgentStep::Write(files) if files.len() == 1));
    assert_eq!(command(session.next(StepResult::Written)).program, "codex");
    session
}

const STARTED: &str = r#"{"type":"thread.started","thread_id":"01a1-b2"}"#;
const FAILED: &str = r#"{"type":"turn.failed","error":{"message":"no"}}"#;
const EXPLAINED: &str =
    r#"{"type":"event_msg","payload":{"type":"task_complete","error":{"codex_error_info":"unauthorized"}}}"#;

#[test]
fn files_are_written_before_the_command_runs() {
    let mut session = running();
    let whole = format!("{STARTED}\n{}", r#"{"type":"turn.completed","usage":{}}"#);
    assert_eq!(
        conclusion(session.next(exited(ExitStatus::Code(0), &whole))),
        AgentConclusion::Continue
    );
}

#[test]
fn a_program_without_files_is_started_at_once() {
    let mut session = ProgramAgent::new(claude(), access(None, AuthMethod::ApiKey)).session(&brief());
    assert_eq!(command(session.next(StepResult::Started)).program, "claude");
}

#[test]
fn codex_failures_are_read_from_its_session_file() {
    let mut session = running();
    let details = session.next(exited(ExitStatus::Code(1), &format!("{STARTED}\n{FAILED}")));
    assert_eq!(
        command(details).to_string(),
        "find /box/agent/sessions -type f -name '*01a1-b2.jsonl' -exec tail -n 20 '{}' ';'"
    );
    let failed = session.next(exited(ExitStatus::Code(0), EXPLAINED));
    assert!(matches!(failed, AgentStep::Fail(_)), "{failed:?}");
}

#[test]
fn a_malformed_thread_id_is_ignored() {
    let mut session = running();
    let hostile = STARTED.replace("01a1-b2", "x -delete");
    let step = session.next(exited(ExitStatus::Code(1), &format!("{hostile}\n{FAILED}")));
    assert!(matches!(conclusion(step), AgentConclusion::Unusable { .. }));
}

#[test]
fn a_killed_session_rotates() {
    let step = running().next(exited(ExitStatus::Idle, STARTED));
    assert!(matches!(conclusion(step), AgentConclusion::Rotate { .. }));
}

#[test]
fn an_unexpected_result_ends_the_session() {
    let step = running().next(StepResult::Written);
    assert!(matches!(conclusion(step), AgentConclusion::Unusable { .. }));
}

#[test]
fn usage_is_read_from_partial_output() {
    let mut printed = CapturedOutput::with_limit(1 << 20);
    printed.push(br#"{"type":"turn.completed","usage":{"input_tokens":5,"output_tokens":1}}"#);
    let usage = running().reported_usage(&printed).unwrap();
    assert_eq!(usage.tokens.unwrap().total(), 6);
}
