//! Agents: what edits the code in one iteration.
//!
//! An agent does no I/O. The runner asks its session for the next [`AgentStep`], carries it out (it calls the model, runs
//! the command in the sandbox, performs the actions) and passes the [`StepResult`] back.
//!
//! There are two kinds of agents. [`actions`] is a plain model whose answers the runner carries out. The others are
//! programs that work with their own tools ([`ProgramAgent`]); each is an [`AgentProgram`]. Everything that ralph knows
//! about an agent is in its [`AgentRecord`]; [`AGENTS`] lists them.
//!
//! ```
//! use ralph::agent::actions::ReportedProgress;
//! use ralph::agent::{
//!     Agent, AgentBrief, AgentConclusion, AgentOutcome, AgentSession, AgentStep, StepResult,
//! };
//! use ralph::exec::Command;
//!
//! /// Formats the code in every iteration.
//! struct Formatter;
//!
//! impl Agent for Formatter {
//!     fn name(&self) -> &str {
//!         "formatter"
//!     }
//!
//!     fn session(&self, _brief: &AgentBrief) -> Box<dyn AgentSession> {
//!         Box::new(FormatterSession)
//!     }
//! }
//!
//! /// Runs one command and ends the iteration.
//! struct FormatterSession;
//!
//! impl AgentSession for FormatterSession {
//!     fn next(&mut self, last: StepResult) -> AgentStep {
//!         match last {
//!             StepResult::Started => AgentStep::Exec(Command::new("cargo").arg("fmt")),
//!             _ => AgentStep::Finish(AgentOutcome {
//!                 summary: "Formatted the code.".to_owned(),
//!                 progress: ReportedProgress::default(),
//!                 conclusion: AgentConclusion::Continue,
//!             }),
//!         }
//!     }
//! }
//!
//! assert!(matches!(FormatterSession.next(StepResult::Started), AgentStep::Exec(_)));
//! ```

mod access;
pub mod actions;
mod agents;
mod claude;
mod codex;
mod cursor;
mod custom;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod gemini;
mod model_failure;
mod opencode;
mod program;
mod program_session;
mod record;
#[cfg(test)]
mod tests;
mod transcript;

use std::fmt;
use std::path::PathBuf;

use crate::exec::{CapturedOutput, Command, Exit};
use crate::model::{ModelMessage, ModelReply, Profile};
use crate::usage::Usd;

use self::actions::{AgentAction, ReportedProgress};

pub use access::{AgentCredential, ModelAccess};
pub use agents::Agents;
pub use claude::{CLAUDE, Claude};
pub use codex::{CODEX, Codex};
pub use cursor::{CURSOR_AGENT, Cursor};
pub use custom::{CUSTOM, Custom, PROMPT_FILE};
pub use gemini::{GEMINI, Gemini};
pub use model_failure::ModelFailure;
pub use opencode::{OPENCODE, OpenCode};
pub use program::{AgentProgram, ProgramAgent};
pub use record::{
    AgentImage, AgentOptions, AgentOptionsError, AgentRecord, KeyVariable, KnownAgent, UnknownAgent,
};
pub use transcript::{ReportedAction, ReportedUsage, TranscriptEnd, TranscriptSummary};

/// Every agent that a configuration can name.
pub static AGENTS: &[KnownAgent] = &[
    &claude::CLAUDE,
    &codex::CODEX,
    &cursor::CURSOR_AGENT,
    &gemini::GEMINI,
    &opencode::OPENCODE,
    &actions::ACTIONS,
    &custom::CUSTOM,
];

/// Opens the sessions of one agent. Implementations do no I/O.
pub trait Agent: Send + Sync {
    /// The agent's name, as in `[agent] name`.
    fn name(&self) -> &str;

    /// The model that it uses, for people: that of the profile by default.
    fn model_name<'a>(&'a self, profile: &'a Profile) -> &'a str {
        &profile.litellm_model
    }

    /// The part of the prompt that describes the expected answer, such as a schema with examples. Empty by
    /// default.
    fn answer_format(&self) -> String {
        String::new()
    }

    /// Opens a fresh session. It knows nothing of earlier sessions.
    fn session(&self, brief: &AgentBrief) -> Box<dyn AgentSession>;

    /// A command that succeeds inside the sandbox if the agent is installed and prints its version. `None` for an agent
    /// that needs nothing there.
    fn check_command(&self) -> Option<Command> {
        None
    }

    /// What a person has to do when the agent's credential is refused.
    fn credential_hint(&self) -> Option<&str> {
        None
    }
}

/// One session of an agent: a state machine without any I/O.
pub trait AgentSession: Send {
    /// Returns the next step, given the result of the last one.
    fn next(&mut self, last: StepResult) -> AgentStep;

    /// What the session used, according to what its commands printed to standard output so far. The runner asks however
    /// the session ended. `None` for a session that calls models only through [`AgentStep::Ask`].
    fn reported_usage(&self, _printed: &CapturedOutput) -> Option<ReportedUsage> {
        None
    }

    /// The actions that a line on standard output reports. `None` for a line that does not belong to a transcript.
    fn reported_actions(&self, _line: &str) -> Option<Vec<ReportedAction>> {
        None
    }
}

/// The input of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentBrief {
    /// The whole prompt.
    pub text: String,
    /// The number of the iteration, from 1.
    pub iteration: u32,
    /// An empty directory of this session, inside the sandbox and outside the clone.
    pub home: PathBuf,
    /// The rest of the cost budget, if there is one.
    pub cost_left: Option<Usd>,
}

/// What the runner has to do next for a session.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentStep {
    /// Ask the model.
    Ask(Vec<ModelMessage>),
    /// Write these files in the sandbox.
    Write(Vec<AgentFile>),
    /// Run this command in the sandbox, in the clone.
    Exec(Command),
    /// Perform these actions in the clone, in order. Stop at the first that fails.
    Perform(Vec<AgentAction>),
    /// The iteration is over.
    Finish(AgentOutcome),
    /// The model did not answer. The runner may open another session in the same iteration.
    Fail(ModelFailure),
}

/// A file that a session needs in the sandbox.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentFile {
    /// The absolute path inside the sandbox.
    pub path: PathBuf,
    /// The content.
    pub text: String,
}

/// Omits the content, which may be confidential.
impl fmt::Debug for AgentFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The result of the last step.
#[derive(Debug)]
pub enum StepResult {
    /// There was no step yet: the session starts.
    Started,
    /// The model answered.
    Answered(ModelReply),
    /// The files are written.
    Written,
    /// The command exited.
    Exited(Exit),
    /// The actions were performed.
    Performed {
        /// Whether every action succeeded.
        completed: bool,
    },
}

impl StepResult {
    /// The error message for a result that the session did not ask for.
    fn unexpected(&self) -> String {
        let name = match self {
            Self::Started => "started",
            Self::Answered(_) => "answered",
            Self::Written => "written",
            Self::Exited(_) => "exited",
            Self::Performed { .. } => "performed",
        };
        format!("the agent session got an unexpected step result: {name}")
    }
}

/// How a session ended. The runner verifies everything in it.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentOutcome {
    /// The agent's description of its work.
    pub summary: String,
    /// What the agent reports as finished.
    pub progress: ReportedProgress,
    /// What the agent asks for next, or why it cannot go on.
    pub conclusion: AgentConclusion,
}

impl AgentOutcome {
    /// The outcome of a session whose result cannot be used.
    pub(crate) fn unusable(error: String) -> Self {
        Self {
            summary: String::new(),
            progress: ReportedProgress::default(),
            conclusion: AgentConclusion::Unusable { error },
        }
    }
}

/// What an agent asks for at the end of an iteration, or why it cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentConclusion {
    /// Start another iteration.
    Continue,
    /// Start another iteration, because this one leads nowhere.
    Rotate {
        /// The agent's reason.
        reason: String,
    },
    /// Wait for a person.
    Pause {
        /// The agent's reason.
        reason: String,
    },
    /// End the run: the agent reports the task as done.
    StopSuccess {
        /// The agent's reason.
        reason: String,
    },
    /// End the run: the agent reports that the task cannot be done.
    StopFailure {
        /// The agent's reason.
        reason: String,
    },
    /// The budget is spent.
    OverBudget {
        /// The message of the program or the service.
        reason: String,
    },
    /// The answer could not be used, even after the agent was asked to repair it.
    Unusable {
        /// What was wrong with the answer.
        error: String,
    },
}
