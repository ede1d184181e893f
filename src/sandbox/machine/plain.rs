//! One command by one call of the machine's program: nothing of ours stands between them. Evidence comes this way.
//!
//! What a command sees goes ahead of its input, in one line that a shell reads: arguments are seen by every user of
//! both machines. A signal is told as a code, and a command that takes too long ends everything in the machine.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::super::END;
use super::super::script;
use crate::exec::{Command, Discard, Exit, ExitStatus, Host, OutputSink};

/// Takes the directory and the variables, then becomes the command.
const ENTER: &str = "IFS= read -r line && eval \"$line\" && exec \"$@\"";

/// The mark by which a Mac's processes are found again.
const MARK: &str = "RALPH_MARK";

/// Runs commands in one machine.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) host: Host,
    /// Runs another command in the machine.
    pub(super) exec: Command,
    pub(super) root: PathBuf,
    /// What every command sees.
    pub(super) env: BTreeMap<String, String>,
}

impl Plain {
    /// Runs a command to its end.
    pub(super) async fn run(&self, command: &Command, output: &mut dyn OutputSink) -> io::Result<Exit> {
        let exit = self.host.run(&self.wrapped(command), output).await?;
        match exit.status {
            ExitStatus::TimedOut | ExitStatus::Idle => {
                self.end_all().await?;
            }
            ExitStatus::Code(_) | ExitStatus::Signal(_) | ExitStatus::OutOfMemory => {}
        }
        Ok(exit)
    }

    /// Ends every process in the machine that was started for us.
    pub(super) async fn end_all(&self) -> io::Result<Exit> {
        let command = self.exec.clone().args(["/bin/sh", "-c", END]);
        self.host.run(&command, &mut Discard).await
    }

    fn wrapped(&self, command: &Command) -> Command {
        let dir = command
            .cwd
            .as_ref()
            .map_or_else(|| self.root.clone(), |cwd| self.root.join(cwd));
        let mut env: BTreeMap<String, String> = self.env.clone();
        env.insert(MARK.to_owned(), "1".to_owned());
        env.extend(command.env.clone());
        let mut input = script::surroundings(&dir, &env).into_bytes();
        input.push(b'\n');
        input.extend_from_slice(command.stdin.as_deref().unwrap_or_default());
        Command {
            timeout: command.timeout,
            idle: command.idle,
            keep: command.keep,
            ..self
                .exec
                .clone()
                .args(["/bin/sh", "-c", ENTER, "sh", &command.program])
                .args(command.args.iter().cloned())
                .stdin(input)
        }
    }
}
