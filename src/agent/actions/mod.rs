//! The built-in agent: a plain model that answers with JSON actions.
//!
//! An answer has to follow the schema in the prompt. An answer that does not is sent back once, with all its problems; a
//! second one ends the iteration. This module only parses and validates; the runner performs the actions.
//!
//! ```
//! use ralph::agent::actions::parse_answer;
//!
//! # fn main() -> Result<(), ralph::agent::actions::AnswerError> {
//! let answer = r#"{"summary": "Test it.", "actions": [{"type": "run", "command": "make test"}]}"#;
//! assert_eq!(parse_answer(answer)?.actions[0].to_string(), "run: make test");
//! assert!(parse_answer("I would run the tests.").is_err());
//! # Ok(())
//! # }
//! ```

mod answer;
mod check;
mod diff;
mod format;
mod json;
mod path;
mod schema;
mod session;

use std::sync::Arc;

use super::{Agent, AgentBrief, AgentImage, AgentRecord, AgentSession};

pub(crate) use answer::check_scripted_answer;
pub use answer::{AnswerError, parse_answer};
pub use diff::{Patch, PatchError, PatchedFile};
pub use path::{PathError, RelPath};
pub use schema::{ActionsAnswer, AgentAction, ReportedProgress};

/// The record of `actions`.
pub static ACTIONS: AgentRecord = AgentRecord {
    name: "actions",
    summary: "The built-in agent that asks a model for actions.",
    program: None,
    install: None,
    image: AgentImage {
        name: "actions",
        dockerfile: include_str!("../../../templates/actions/Dockerfile.j2"),
    },
    service: None,
    base_path: "",
    accepts_base_url: true,
    key_variables: &[],
    settings_files: &[],
    reports_cost: true,
    is_built_in: true,
    create: |_, _| Ok(Arc::new(ActionsAgent)),
};

/// The agent named `actions`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ActionsAgent;

impl Agent for ActionsAgent {
    fn name(&self) -> &'static str {
        "actions"
    }

    fn answer_format(&self) -> String {
        format::answer_format()
    }

    fn session(&self, brief: &AgentBrief) -> Box<dyn AgentSession> {
        Box::new(session::ActionsSession::new(brief))
    }
}
