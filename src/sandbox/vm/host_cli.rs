//! Runs the host CLI that creates VMs.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::super::{SandboxError, SandboxErrorKind};
use crate::exec::{Command, Discard, Exit, Host};

/// Limit for a command without a timeout of its own.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The most output that is kept, in bytes.
const MAX_OUTPUT: usize = 16 << 20;

/// Runs a command that must succeed, and returns its output.
pub(in crate::sandbox) async fn run(host: &Host, command: Command) -> Result<String, SandboxError> {
    let line = command.to_string();
    let exit = try_run(host, command).await?;
    if exit.success() {
        Ok(exit.stdout.text())
    } else {
        Err(failed(&line, &exit))
    }
}

/// Runs a command that must succeed and print JSON.
pub(in crate::sandbox) async fn run_json<T: DeserializeOwned>(
    host: &Host,
    command: Command,
) -> Result<T, SandboxError> {
    let line = command.to_string();
    parse_json(&line, &run(host, command).await?)
}

/// Runs a command, and returns how it exited.
pub(in crate::sandbox) async fn try_run(host: &Host, command: Command) -> Result<Exit, SandboxError> {
    let line = command.to_string();
    let command = match command.timeout {
        Some(_) => command,
        None => command.timeout(TIMEOUT),
    };
    let exit = host.run(&command.keep(MAX_OUTPUT), &mut Discard).await;
    exit.map_err(|error| SandboxError::new(SandboxErrorKind::Failed, format!("`{line}` failed: {error}")))
}

/// The error for a command that failed.
pub(in crate::sandbox) fn failed(line: &str, exit: &Exit) -> SandboxError {
    let stderr = exit.stderr.text();
    let message = format!("`{line}` failed: {} ({})", stderr.trim(), exit.status);
    SandboxError::new(SandboxErrorKind::Failed, message)
}

/// Parses the JSON that a command printed.
pub(in crate::sandbox) fn parse_json<T: DeserializeOwned>(line: &str, text: &str) -> Result<T, SandboxError> {
    serde_json::from_str(text).map_err(|error| {
        let message = format!("cannot parse the output of `{line}`: {error}");
        SandboxError::new(SandboxErrorKind::Failed, message).with_hint(Some(
            "ralph may not support this version of the program; `ralph doctor env` shows the version",
        ))
    })
}
