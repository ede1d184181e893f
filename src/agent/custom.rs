//! `custom`: any program that reads a prompt and edits the files around it.

use crate::exec::Command;

use super::{Access, Brief, End, NewFile, Program, Report, Spent};

/// What stands, in an argument, for the file that holds the prompt.
pub const PROMPT_FILE: &str = "{prompt_file}";

/// An agent that the configuration describes.
#[derive(Clone, Debug)]
pub struct Custom {
    /// The program.
    pub program: String,
    /// Its arguments. [`PROMPT_FILE`] in one stands for the file that holds the prompt, which it also gets on its
    /// standard input.
    pub args: Vec<String>,
    /// Its credential, and the variable that it has for it.
    pub key_variable: Option<String>,
    /// How it reaches its model.
    pub access: Access,
}

impl Program for Custom {
    fn name(&self) -> &'static str {
        "custom"
    }

    fn access(&self) -> &Access {
        &self.access
    }

    /// Whether it is there: what else it can be asked, nobody knows.
    fn probe(&self) -> Command {
        Command::new("sh").args(["-c", r#"command -v -- "$1""#, "sh", &self.program])
    }

    fn files(&self, brief: &Brief) -> Vec<NewFile> {
        vec![NewFile {
            path: brief.home.join("prompt.md"),
            text: brief.text.clone(),
        }]
    }

    fn command(&self, brief: &Brief) -> Command {
        let file = brief.home.join("prompt.md").display().to_string();
        let args = self.args.iter().map(|arg| arg.replace(PROMPT_FILE, &file));
        let command = Command::new(&self.program).args(args).stdin(brief.text.clone());
        match (&self.key_variable, &self.access.credential) {
            (Some(variable), Some(credential)) => command.env(variable, credential.value.expose()),
            _ => command,
        }
    }

    /// Its output is all text, so its exit code alone says how it ended.
    fn read(&self, printed: &str) -> Report {
        let lines: Vec<&str> = printed.trim_end().lines().rev().take(LAST_LINES).collect();
        Report {
            text: lines.into_iter().rev().collect::<Vec<_>>().join("\n"),
            spent: Spent::default(),
            end: End::Well,
        }
    }
}

/// How much of its output stands for a summary.
const LAST_LINES: usize = 20;
