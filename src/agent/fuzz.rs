//! Fuzz bodies of what agents produce: answers with actions, diffs and transcripts.

use super::actions::{Patch, PatchedFile, RelPath, check_scripted_answer, parse_answer};
use super::{AgentOutcome, AgentProgram, AgentStep, Claude, Codex, Cursor, Gemini, OpenCode, ReportedAction};
use crate::exec::ExitStatus;

/// The longest message about a diff, or about one problem of an answer, in characters.
const LONGEST_MESSAGE: usize = 3_000;
/// What the text about an action may add to the line that reports it, in bytes.
const ADDED: usize = 32;
/// The longest summary, in characters.
const LONGEST_SUMMARY: usize = 4_000;

/// The answer of a model.
pub(crate) fn agent_answer(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    let answer = parse_answer(text);
    assert_eq!(check_scripted_answer(text).is_ok(), answer.is_ok());
    match answer {
        Ok(answer) => {
            let written = serde_json::to_string(&answer).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(parse_answer(&written), Ok(answer), "{written}");
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.split("\n- ").all(is_short), "{message}");
        }
    }
    if let Ok(path) = RelPath::parse(text) {
        let is_plain = |part: &str| !matches!(part, "" | "." | ".." | ".git");
        assert!(path.as_str().split('/').all(is_plain), "{path}");
        assert_eq!(RelPath::parse(path.as_str()), Ok(path));
    }
}

/// A diff, and after a NUL the file that it changes.
pub(crate) fn unified_diff(bytes: &[u8]) {
    let (diff, file) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], Some(&bytes[end + 1..])),
        None => (bytes, None),
    };
    let text = &*String::from_utf8_lossy(diff);
    let patch = match Patch::parse(text) {
        Ok(patch) => patch,
        Err(error) => return assert!(is_short(&error.to_string()), "{error}"),
    };
    assert!(patch.hunk_count() <= text.len());
    for original in [None, Some(&[][..]), file] {
        match patch.apply(original) {
            Ok(PatchedFile::Content(new)) => {
                // Each line may get a carriage return and a line feed.
                let most = 3 * (original.map_or(0, <[u8]>::len) + text.len());
                assert!(new.len() <= most);
            }
            Ok(PatchedFile::Deleted) => assert!(original.is_some()),
            Err(error) => assert!(is_short(&error.to_string()), "{error}"),
        }
    }
    assert_eq!(String::from(patch), text);
}

/// What an agent program printed. The first byte says which program.
pub(crate) fn transcript(bytes: &[u8]) {
    let Some((program, printed)) = bytes.split_first() else {
        return;
    };
    let programs: [&dyn AgentProgram; 5] = [
        &Claude::default(),
        &Codex::default(),
        &Cursor::default(),
        &Gemini::default(),
        &OpenCode::default(),
    ];
    let program = programs[usize::from(*program) % programs.len()];
    let text = &*String::from_utf8_lossy(printed);
    let summary = program.parse_transcript(text);
    assert!(summary.text.len() <= text.len());
    if let AgentStep::Finish(AgentOutcome { summary, .. }) = summary.into_step("agent", ExitStatus::Code(0)) {
        assert!(summary.chars().count() <= LONGEST_SUMMARY);
    }
    for line in text.lines() {
        for action in program.reported_actions(line).unwrap_or_default() {
            let (ReportedAction::Started { what, .. } | ReportedAction::Performed { what }) = action else {
                continue;
            };
            assert!(what.len() <= line.len() + ADDED, "{what}");
        }
    }
}

fn is_short(message: &str) -> bool {
    message.chars().count() <= LONGEST_MESSAGE
}
