//! The built-in agent: a plain model that answers JSON actions.
//!
//! An answer is read strictly against the schema the model was shown. One that cannot be used is sent back once, with
//! everything that is wrong with it; a second one ends the iteration. Nothing is performed here: paths and diffs are
//! types that cannot be wrong, and the runner does the rest.

mod answer;
mod check;
mod diff;
mod format;
mod json;
mod path;
mod schema;
mod session;

use super::{Agent, Brief, Session};

pub use answer::{AnswerError, parse_answer};
pub use check::{Fault, Problem};
pub use diff::{Applied, Patch, PatchError, PatchFormatError};
pub use json::{Kind, Position};
pub use path::{PathError, RelPath};
pub use schema::{Action, Answer, Claims};

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

    fn session(&self, brief: &Brief) -> Box<dyn Session> {
        Box::new(session::ActionsSession::new(brief))
    }
}
