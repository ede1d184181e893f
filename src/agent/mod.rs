//! Agents: what edits the code in one iteration.
//!
//! An agent starts nothing. It is asked what to do next, says so as a [`Step`], and is told what came of it. The
//! runner does the steps: it calls the model, runs the command in the sandbox, performs the actions.
//!
//! There are two kinds. [`actions`] is a plain model whose answers the runner performs. The others are programs that
//! work by themselves ([`ProgramAgent`]): what is known of each, its command line and its transcript, is a [`Program`].

mod access;
pub mod actions;
mod agents;
mod claude;
mod codex;
mod cursor;
mod custom;
mod program;
mod report;
mod session;
#[cfg(test)]
mod tests;
mod transcript;
mod trouble;

use std::fmt;
use std::path::PathBuf;

use crate::exec::{Captured, Command, Exit};
use crate::model::{Message, Reply};
use crate::usage::Usd;

use self::actions::{Action, Claims};

pub use access::{Access, Credential, CredentialKind};
pub use agents::Agents;
pub use claude::Claude;
pub use codex::Codex;
pub use cursor::Cursor;
pub use custom::{Custom, PROMPT_FILE};
pub use program::{KeyVariable, Program, ProgramAgent};
pub use report::{End, Report, Spent};
pub use trouble::Trouble;

/// Knows one agent's way of working. Starts nothing.
pub trait Agent: Send + Sync {
    /// The agent's name, as in `[agent] name`.
    fn name(&self) -> &str;

    /// The part of the prompt that tells how to answer (the schema with examples, for `actions`); empty for agents
    /// that need none.
    fn answer_format(&self) -> String;

    /// Opens a fresh session. Nothing of an earlier one is known to it.
    fn session(&self, brief: &Brief) -> Box<dyn Session>;

    /// A command that shows, inside the sandbox, that the agent is there and which version it is; `None` for an agent
    /// that needs nothing there.
    fn probe(&self) -> Option<Command> {
        None
    }

    /// What a person does when the agent's credential is refused.
    fn remedy(&self) -> Option<&str> {
        None
    }
}

/// One fresh session of an agent: a state machine without any I/O.
pub trait Session: Send {
    /// Says what to do next, given what came of the last step.
    fn next(&mut self, last: Done) -> Step;

    /// What the session used by its own account, given what its commands printed on their standard output so far.
    /// Asked however it ends. `None` for a session that calls no model but through [`Step::Ask`].
    fn spent(&self, _printed: &Captured) -> Option<Spent> {
        None
    }
}

/// What a session begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brief {
    /// The whole prompt.
    pub text: String,
    /// The number of the iteration, from 1.
    pub iteration: u32,
    /// A directory inside the sandbox and outside of the clone, empty, and of this session alone.
    pub home: PathBuf,
    /// What may still be spent, where there is a limit.
    pub cost_left: Option<Usd>,
}

/// What the runner is to do for the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask the model.
    Ask(Vec<Message>),
    /// Write these files in the sandbox.
    Write(Vec<NewFile>),
    /// Run this in the sandbox, in the clone.
    Exec(Command),
    /// Perform these actions, in order, in the clone.
    Perform(Vec<Action>),
    /// The iteration is over.
    Finish(Outcome),
    /// The session is over, and it is not the agent's doing: there may be another one in the same iteration.
    Fail(Trouble),
}

/// A file to write.
#[derive(Clone, PartialEq, Eq)]
pub struct NewFile {
    /// Where, as an absolute path inside the sandbox.
    pub path: PathBuf,
    /// All that it holds.
    pub text: String,
}

/// Where only: what a file holds may be confidential.
impl fmt::Debug for NewFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// What came of the last step.
#[derive(Debug)]
pub enum Done {
    /// Nothing yet: the session begins.
    Nothing,
    /// The model answered.
    Answered(Reply),
    /// The files are written.
    Written,
    /// The command ended.
    Exited(Exit),
    /// The actions were performed.
    Performed(Reached),
}

impl Done {
    /// A word for it, for a session that was told out of turn.
    fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Answered(_) => "answered",
            Self::Written => "written",
            Self::Exited(_) => "exited",
            Self::Performed(_) => "performed",
        }
    }
}

/// How far a list of actions went. The first that fails ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// To its end.
    End,
    /// To the action that failed.
    Failure,
}

/// How the agent left the iteration. What it claims is checked by the runner, never believed.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What it says it did.
    pub summary: String,
    /// What it says is finished.
    pub claims: Claims,
    /// What it asks for next.
    pub ending: Ending,
}

/// What an agent asks for at the end of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Another iteration.
    Continue,
    /// A fresh context, because this one leads nowhere.
    Rotate {
        /// Why.
        reason: String,
    },
    /// A person.
    Pause {
        /// Why.
        reason: String,
    },
    /// The end: it says the task is done.
    StopSuccess {
        /// Why.
        reason: String,
    },
    /// The end: it says the task cannot be done.
    StopFailure {
        /// Why.
        reason: String,
    },
    /// The end: what it may spend is spent.
    OverBudget {
        /// Who said so, and how.
        reason: String,
    },
    /// Nothing: its answer could not be used, even after a repair round.
    Unusable {
        /// What was wrong with it.
        error: String,
    },
}
