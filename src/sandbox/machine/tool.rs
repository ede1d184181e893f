//! The program that makes machines, as it is called.

use std::io;
use std::time::Duration;

use super::super::SandboxError;
use crate::exec::{Command, Discard, Exit, Host};

/// Nothing that is asked takes longer, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(600);

/// The longest answer that is read.
const LONGEST: usize = 16 << 20;

/// Runs a command of the program that must succeed, and returns what it printed.
pub(in crate::sandbox) async fn run(host: &Host, command: Command) -> Result<String, SandboxError> {
    let (line, exit) = try_run(host, command).await?;
    if exit.success() {
        Ok(exit.stdout.text())
    } else {
        Err(failed(line, &exit))
    }
}

/// Runs a command of the program, and returns how it ended and what it was.
pub(in crate::sandbox) async fn try_run(
    host: &Host,
    command: Command,
) -> Result<(String, Exit), SandboxError> {
    let line = command.to_string();
    let command = match command.timeout {
        Some(_) => command,
        None => command.timeout(PATIENCE),
    };
    let exit = host.run(&command.keep(LONGEST), &mut Discard).await;
    let exit = exit.map_err(|source| not_run(&line, &source))?;
    Ok((line, exit))
}

/// A command of the program that failed.
pub(in crate::sandbox) fn failed(line: String, exit: &Exit) -> SandboxError {
    let said = exit.stderr.text();
    SandboxError::Program {
        line,
        said: format!("{} ({})", said.trim(), exit.status),
        hint: None,
    }
}

/// An answer that makes no sense.
pub(in crate::sandbox) fn nonsense(line: &str, error: &serde_json::Error) -> SandboxError {
    SandboxError::Program {
        line: line.to_owned(),
        said: format!("its answer cannot be read: {error}"),
        hint: Some("ralph may not know this version of the program; `ralph doctor env` tells which it is"),
    }
}

fn not_run(line: &str, source: &io::Error) -> SandboxError {
    SandboxError::Program {
        line: line.to_owned(),
        said: source.to_string(),
        hint: None,
    }
}
