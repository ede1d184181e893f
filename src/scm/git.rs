//! Runs git without the user's settings, hooks, prompts or network.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::error::ScmError;
use crate::exec::{Command, Discard, Exit, Host, OutputSink};
use crate::id::ObjectId;

/// Limit for one git command. None takes that long on any known repository.
pub(super) const TIMEOUT: Duration = Duration::from_secs(900);
/// The longest output that is read completely, in bytes.
pub(super) const MAX_OUTPUT: usize = 64 * 1024 * 1024;
/// How many characters of a failed command's message are shown.
const MAX_MESSAGE: usize = 2000;

/// Settings that override the repository's own configuration.
const SETTINGS: [&str; 8] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.commitGraph=true",
    "core.quotePath=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "submodule.recurse=false",
];

/// Variables that disable the user's and the system's settings.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("LC_ALL", "C"),
];

/// A git directory on the host. No agent can write to it.
#[derive(Clone, Debug)]
pub(super) struct GitDir {
    host: Host,
    pub(super) path: PathBuf,
}

impl GitDir {
    pub(super) fn new(host: Host, path: PathBuf) -> Self {
        Self { host, path }
    }

    /// Another git directory on the same host.
    pub(super) fn with_path(&self, path: PathBuf) -> Self {
        Self::new(self.host.clone(), path)
    }

    /// The same git directory, with git started by another host handle.
    pub(super) fn with_host(&self, host: Host) -> Self {
        Self::new(host, self.path.clone())
    }

    /// A git command on this directory, never on a working directory. `args` are separated by spaces.
    pub(super) fn command(&self, args: &str) -> Command {
        hardened(&["--no-optional-locks", "--git-dir=."])
            .cwd(&self.path)
            .args(args.split(' '))
    }

    /// The same with the user's own settings, which have credentials of servers. No hook runs.
    pub(super) fn user_command(&self, args: &str) -> Command {
        Command::new("git")
            .args(["--no-pager", "-c", "core.hooksPath=/dev/null"])
            .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false", "--git-dir=."])
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .cwd(&self.path)
            .args(args.split(' '))
            .timeout(TIMEOUT)
            .keep(MAX_OUTPUT)
    }

    /// Runs a command. Its failure is not an error.
    pub(super) async fn exit(&self, command: &Command) -> Result<Exit, ScmError> {
        run_on_host(&self.host, command).await
    }

    /// Runs a command and passes its output to a sink. Its failure is not an error.
    pub(super) async fn stream(
        &self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, ScmError> {
        self.host.run(command, output).await.map_err(ScmError::Start)
    }

    /// Runs a command and returns its output. Its failure is an error.
    pub(super) async fn run(&self, command: &Command) -> Result<Vec<u8>, ScmError> {
        output(command, &self.exit(command).await?)
    }
}

/// Awaits work that goes on if the caller is dropped, as it is when the lease of a run ends. A git command that writes objects to the
/// user's repository leaves half a pack there if it is killed.
pub(super) async fn uninterrupted<T: Send + 'static>(
    work: impl Future<Output = Result<T, ScmError>> + Send + 'static,
) -> Result<T, ScmError> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(cancelled) => Err(ScmError::Start(io::Error::other(cancelled))),
        },
    }
}

/// Runs a command on the host. Its failure is not an error.
pub(super) async fn run_on_host(host: &Host, command: &Command) -> Result<Exit, ScmError> {
    host.run(command, &mut Discard).await.map_err(ScmError::Start)
}

/// Git with ralph's settings, and these options before the subcommand.
pub(super) fn hardened(options: &[&str]) -> Command {
    let mut command = Command::new("git").args(["--no-pager", "--literal-pathspecs"]);
    for setting in SETTINGS {
        command = command.args(["-c", setting]);
    }
    for (name, value) in ENVIRONMENT {
        command = command.env(name, value);
    }
    command
        .args(options.iter().copied())
        .timeout(TIMEOUT)
        .keep(MAX_OUTPUT)
}

/// The output of a command that succeeded.
pub(super) fn output(command: &Command, exit: &Exit) -> Result<Vec<u8>, ScmError> {
    if !exit.success() {
        return Err(failure(command, exit));
    }
    exit.stdout.complete().ok_or_else(|| ScmError::OutputTooLong {
        command: subcommand(command),
        bytes: exit.stdout.total(),
    })
}

/// The error for a command that failed.
pub(super) fn failure(command: &Command, exit: &Exit) -> ScmError {
    ScmError::Git {
        command: subcommand(command),
        dir: command.cwd.clone().unwrap_or_default(),
        status: exit.status,
        stderr: message(exit),
    }
}

/// The error message of a failed command.
pub(super) fn message(exit: &Exit) -> String {
    exit.stderr.text().trim().chars().take(MAX_MESSAGE).collect()
}

/// The input of git's `--stdin`: the revision `wanted` without what `known` reaches.
pub(super) fn revisions(wanted: &str, known: &[ObjectId]) -> String {
    known.iter().fold(format!("{wanted}\n"), |lines, id| {
        lines + "^" + id.as_str() + "\n"
    })
}

/// Parses output that is one object id.
pub(super) fn one_id(printed: &[u8]) -> Result<ObjectId, ScmError> {
    std::str::from_utf8(printed)
        .ok()
        .and_then(|text| ObjectId::parse(text.trim_end()).ok())
        .ok_or_else(|| unexpected("an object id", printed))
}

/// The NUL-separated records of git's output, without empty ones.
pub(super) fn records(printed: &[u8]) -> impl Iterator<Item = &[u8]> {
    printed
        .split(|byte| *byte == 0)
        .filter(|record| !record.is_empty())
}

/// The error for output that cannot be parsed.
pub(super) fn unexpected(what: &'static str, printed: &[u8]) -> ScmError {
    let text = String::from_utf8_lossy(&printed[..printed.len().min(200)]).into_owned();
    ScmError::Unexpected { what, text }
}

/// The command line without ralph's settings, which are always the same.
fn subcommand(command: &Command) -> String {
    let mut args = command.args.iter().peekable();
    let mut rest = Vec::new();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-c" if rest.is_empty() => drop(args.next()),
            option if rest.is_empty() && option.starts_with("--") => {}
            other => rest.push(other.to_owned()),
        }
    }
    Command::new("git").args(rest).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_subcommand_and_not_our_settings() {
        let command = hardened(&["--git-dir=."]).args(["update-ref", "-d", "refs/x"]);
        assert_eq!(subcommand(&command), "git update-ref -d refs/x");
    }
}
