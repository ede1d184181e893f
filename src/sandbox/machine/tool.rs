//! The program that makes machines, as it is called.

use std::io;
use std::time::Duration;

use super::super::{SandboxError, SandboxErrorKind};
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
    SandboxError::new(
        SandboxErrorKind::Failed,
        format!("`{line}` failed: {} ({})", said.trim(), exit.status),
    )
}

/// An answer that makes no sense.
pub(in crate::sandbox) fn nonsense(line: &str, error: &serde_json::Error) -> SandboxError {
    let message = format!("cannot parse the output of `{line}`: {error}");
    SandboxError::new(SandboxErrorKind::Failed, message).with_hint(Some(
        "ralph may not support this version of the program; `ralph doctor env` shows the version",
    ))
}

fn not_run(line: &str, source: &io::Error) -> SandboxError {
    SandboxError::new(SandboxErrorKind::Failed, format!("`{line}` failed: {source}"))
}
