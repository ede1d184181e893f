//! Agents that are programs: they get the prompt on their standard input and work by themselves.

use std::sync::Arc;

use crate::exec::Command;

use super::session::ProgramSession;
use super::{Access, Agent, Brief, CredentialKind, NewFile, Report, Session};

/// What is known of one agent program: its command line, its files and its transcript.
pub trait Program: Send + Sync {
    /// The agent's name, as in `[agent] name`.
    fn name(&self) -> &'static str;

    /// How it reaches its model.
    fn access(&self) -> &Access;

    /// A command that prints its version.
    fn probe(&self) -> Command;

    /// The files it needs before it starts.
    fn files(&self, _brief: &Brief) -> Vec<NewFile> {
        Vec::new()
    }

    /// The command of one session. The prompt goes in by standard input or by a file, never as an argument.
    fn command(&self, brief: &Brief) -> Command;

    /// A command that finds out more about a session that failed. What it prints is added to the transcript.
    fn look_up(&self, _brief: &Brief, _printed: &str) -> Option<Command> {
        None
    }

    /// Reads a transcript, whole or not.
    fn read(&self, printed: &str) -> Report;
}

/// A variable that by custom holds the credential of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyVariable {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: CredentialKind,
}

/// An agent that is a program.
#[derive(Clone)]
pub struct ProgramAgent(Arc<dyn Program>);

impl ProgramAgent {
    /// The agent that this program is.
    pub fn new(program: impl Program + 'static) -> Self {
        Self(Arc::new(program))
    }
}

impl Agent for ProgramAgent {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn answer_format(&self) -> String {
        include_str!("../../templates/prompt/program.md")
            .trim_end()
            .to_owned()
    }

    fn session(&self, brief: &Brief) -> Box<dyn Session> {
        Box::new(ProgramSession::new(self.0.clone(), brief))
    }

    fn probe(&self) -> Option<Command> {
        Some(self.0.probe())
    }

    fn remedy(&self) -> Option<&str> {
        Some(&self.0.access().remedy)
    }
}
