//! `custom`: any program that reads a prompt and edits files.

use std::sync::Arc;

use crate::exec::Command;

use super::actions::ACTIONS;
use super::{
    AgentBrief, AgentFile, AgentOptionsError, AgentProgram, AgentRecord, ModelAccess, ProgramAgent,
    ReportedUsage, TranscriptEnd, TranscriptSummary,
};

/// The placeholder in an argument for the path of the prompt file.
pub const PROMPT_FILE: &str = "{prompt_file}";

/// The record of `custom`.
pub static CUSTOM: AgentRecord = AgentRecord {
    name: "custom",
    summary: "The program that `agent.custom` names.",
    program: None,
    install: None,
    image: ACTIONS.image,
    service: None,
    base_path: "",
    accepts_base_url: true,
    key_variables: &[],
    settings_files: &[],
    reports_cost: false,
    is_built_in: false,
    create: |options, access| {
        let mut words = options.command.into_iter();
        let custom = Custom {
            program: words.next().ok_or(AgentOptionsError::NoCommand)?,
            args: words.collect(),
            key_variable: options.key_variable,
        };
        Ok(Arc::new(ProgramAgent::new(custom, access)))
    },
};

/// The agent `custom`: a program that the configuration names.
#[derive(Clone, Debug)]
pub struct Custom {
    /// The program.
    pub program: String,
    /// Its arguments. [`PROMPT_FILE`] is replaced by the path of a file with the prompt. The program also gets the
    /// prompt on standard input.
    pub args: Vec<String>,
    /// The environment variable for its credential.
    pub key_variable: Option<String>,
}

/// How many lines at the end of the output become the summary.
const LAST_LINES: usize = 20;

impl AgentProgram for Custom {
    fn name(&self) -> &'static str {
        CUSTOM.name
    }

    /// Only checks that the program exists: not every program has a version option.
    fn check_command(&self) -> Command {
        Command::new("sh").args(["-c", r#"command -v -- "$1""#, "sh", &self.program])
    }

    fn files(&self, brief: &AgentBrief, _access: &ModelAccess) -> Vec<AgentFile> {
        vec![AgentFile {
            path: brief.home.join("prompt.md"),
            text: brief.text.clone(),
        }]
    }

    fn command(&self, brief: &AgentBrief, access: &ModelAccess) -> Command {
        let file = brief.home.join("prompt.md").display().to_string();
        let args = self.args.iter().map(|arg| arg.replace(PROMPT_FILE, &file));
        let command = Command::new(&self.program).args(args).stdin(brief.text.clone());
        match (&self.key_variable, &access.credential) {
            (Some(variable), Some(credential)) => command.env(variable, credential.value.expose()),
            _ => command,
        }
    }

    /// The output has no known format, so only the exit code says how the session ended.
    fn parse_transcript(&self, printed: &str) -> TranscriptSummary {
        let lines: Vec<&str> = printed.trim_end().lines().rev().take(LAST_LINES).collect();
        TranscriptSummary {
            text: lines.into_iter().rev().collect::<Vec<_>>().join("\n"),
            usage: ReportedUsage::default(),
            end: TranscriptEnd::Finished,
        }
    }
}
