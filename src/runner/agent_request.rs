//! What an agent says to people: a file in the clone, which the prompt names.

use std::path::Path;

use serde::Deserialize;

use crate::agent::AgentConclusion;
use crate::sandbox::{Sandbox, SandboxError};
use crate::text::error_chain;

use super::error::is_sandbox_fault;

/// The file, below the clone.
const FILE: &str = ".ralph/request.json";
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentRequest {
    request: AgentRequestKind,
    reason: String,
}

/// What an agent can ask for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AgentRequestKind {
    /// A person has to decide something.
    Person,
    /// Something is missing that only a person can provide.
    Blocked,
    /// The task cannot be done.
    GiveUp,
}

/// Takes an agent's request out of the clone: how the iteration ends, or why the request cannot be used.
pub(super) async fn take_request(
    sandbox: &dyn Sandbox,
    clone: &Path,
) -> Result<Option<Result<AgentConclusion, String>>, SandboxError> {
    let file = clone.join(FILE);
    let bytes = match sandbox.files().read(&file, MAX_BYTES).await {
        Ok(bytes) => bytes,
        Err(error) if is_sandbox_fault(error.kind()) => return Err(error),
        // Most sessions leave no such file.
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => {
            match sandbox.files().remove(&file).await {
                Err(error) if is_sandbox_fault(error.kind()) => return Err(error),
                // The agent put something else in place of the directory.
                Ok(()) | Err(_) => {}
            }
            return Ok(Some(Err(unusable(&error_chain(&error)))));
        }
    };
    sandbox.files().remove(&file).await?;
    Ok(Some(parse(&bytes).map_err(|problem| unusable(&problem))))
}

fn unusable(problem: &str) -> String {
    format!("the request in `{FILE}` cannot be used: {problem}")
}

fn parse(bytes: &[u8]) -> Result<AgentConclusion, String> {
    let AgentRequest { request, reason } =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let reason = reason.trim();
    if reason.is_empty() {
        return Err("its reason is empty".to_owned());
    }
    Ok(match request {
        AgentRequestKind::Person => AgentConclusion::Pause {
            reason: reason.to_owned(),
        },
        AgentRequestKind::Blocked => AgentConclusion::Pause {
            reason: format!("it is blocked: {reason}"),
        },
        AgentRequestKind::GiveUp => AgentConclusion::StopFailure {
            reason: reason.to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        r#"{"request": "person", "reason": " which one? "}"#,
        Ok("Pause { reason: \"which one?\" }")
    )]
    #[case(
        r#"{"request": "blocked", "reason": "no key"}"#,
        Ok("Pause { reason: \"it is blocked: no key\" }")
    )]
    #[case(
        r#"{"request": "give_up", "reason": "no"}"#,
        Ok("StopFailure { reason: \"no\" }")
    )]
    #[case(r#"{"request": "blocked", "reason": " "}"#, Err("its reason is empty"))]
    #[case(r#"{"request": "blocked"}"#, Err("missing field `reason`"))]
    #[case(r#"{"request": "money", "reason": "r"}"#, Err("unknown variant `money`"))]
    #[case("help", Err("expected value"))]
    fn a_request_is_read_strictly(#[case] text: &str, #[case] expected: Result<&str, &str>) {
        match (parse(text.as_bytes()), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(format!("{found:?}"), expected),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            (found, _) => panic!("{found:?}"),
        }
    }
}
