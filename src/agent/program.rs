//! Agents that are programs: they read the prompt from standard input and work with their own tools.

use std::sync::Arc;

use crate::exec::Command;
use crate::model::Profile;

use super::program_session::ProgramSession;
use super::{Agent, AgentBrief, AgentFile, AgentSession, ModelAccess, ReportedAction, TranscriptSummary};

/// One agent program: its command line, its files and its transcript format.
pub trait AgentProgram: Send + Sync {
    /// The name of the agent.
    fn name(&self) -> &str;

    /// The configured model. `None` if it chooses one itself.
    fn model_name(&self) -> Option<&str> {
        None
    }

    /// A command that succeeds inside the sandbox if the program is installed. It prints the version if it can. By default
    /// the program has the agent's name.
    fn check_command(&self) -> Command {
        Command::new(self.name()).arg("--version")
    }

    /// The files that have to exist before the program starts.
    fn files(&self, _brief: &AgentBrief, _access: &ModelAccess) -> Vec<AgentFile> {
        Vec::new()
    }

    /// The command of one session. The prompt is passed by standard input or in a file, never as an argument.
    fn command(&self, brief: &AgentBrief, access: &ModelAccess) -> Command;

    /// A command that prints details of a failed session. Its output is appended to the transcript.
    fn failure_details(&self, _brief: &AgentBrief, _printed: &str) -> Option<Command> {
        None
    }

    /// Summarizes what the program printed so far. The text may be cut off anywhere.
    fn parse_transcript(&self, printed: &str) -> TranscriptSummary;

    /// The actions that a line of the transcript reports. `None` for a line that does not belong to the transcript, and by
    /// default.
    fn reported_actions(&self, _line: &str) -> Option<Vec<ReportedAction>> {
        None
    }
}

/// An [`AgentProgram`] with access to its model, as an [`Agent`].
#[derive(Clone)]
pub struct ProgramAgent {
    pub(super) program: Arc<dyn AgentProgram>,
    pub(super) access: ModelAccess,
}

impl ProgramAgent {
    /// An agent that runs this program.
    pub fn new(program: impl AgentProgram + 'static, access: ModelAccess) -> Self {
        Self {
            program: Arc::new(program),
            access,
        }
    }
}

impl Agent for ProgramAgent {
    fn name(&self) -> &str {
        self.program.name()
    }

    fn model_name<'a>(&'a self, _profile: &'a Profile) -> &'a str {
        self.program.model_name().unwrap_or("the program's default")
    }

    fn answer_format(&self) -> String {
        include_str!("../../templates/prompt/program.md")
            .trim_end()
            .to_owned()
    }

    fn session(&self, brief: &AgentBrief) -> Box<dyn AgentSession> {
        Box::new(ProgramSession::new(self.clone(), brief))
    }

    fn check_command(&self) -> Option<Command> {
        Some(self.program.check_command())
    }

    fn credential_hint(&self) -> Option<&str> {
        self.access.credential_hint.as_deref()
    }
}
