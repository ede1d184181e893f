//! Runs commands in a VM through the host CLI that created it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::super::session::{SessionContext, SessionError, WarmSession};
use super::super::{END_PROCESSES, shell};
use crate::exec::{Command, Discard, Exit, ExitStatus, Host, OutputSink};

/// A shell script that reads the working directory and the variables from the first line of its input and executes the
/// command.
const ENTER: &str = "IFS= read -r line && eval \"$line\" && exec \"$@\"";

/// How long it may take to end all processes. The agent may stop the script that does it.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// Marks the processes of ralph, so that they can be found in a macOS VM.
const MARK: &str = "RALPH_MARK";

/// Runs commands in one VM: one host process per command, or a warm session.
#[derive(Clone, Debug)]
pub(super) struct VmExec {
    pub(super) host: Host,
    /// The host command that runs another command in the VM.
    pub(super) exec: Command,
    /// The path of the guest in the VM.
    pub(super) guest: PathBuf,
    pub(super) context: SessionContext,
}

impl VmExec {
    /// Runs a command to its end, without the warm session. Evidence is collected this way.
    ///
    /// Variables are passed as input, because all users of host and VM can see arguments. Signals appear as exit codes. A
    /// command that reaches a time limit ends all processes of ralph in the VM.
    pub(super) async fn run(&self, command: &Command, output: &mut dyn OutputSink) -> io::Result<Exit> {
        let exit = self.host.run(&self.wrap(command), output).await?;
        if matches!(exit.status, ExitStatus::TimedOut | ExitStatus::Idle) {
            self.end_all().await?;
        }
        Ok(exit)
    }

    /// Opens a warm session with the guest.
    pub(super) async fn open_session(&self) -> Result<WarmSession, SessionError> {
        let guest = self.guest.to_string_lossy();
        let command = self.exec.clone().args([guest, "session".into()]);
        let (from_guest, to_guest) = self.host.open_piped(&command)?;
        WarmSession::open(from_guest, to_guest, self.context.clone()).await
    }

    /// Ends all processes of ralph in the VM.
    pub(super) async fn end_all(&self) -> io::Result<Exit> {
        let command = self.exec.clone().args(["/bin/sh", "-c", END_PROCESSES]);
        self.host.run(&command.timeout(END_TIMEOUT), &mut Discard).await
    }

    fn wrap(&self, command: &Command) -> Command {
        let dir = command.dir_in(&self.context.dir);
        let mut env: BTreeMap<String, String> = self.context.env.clone();
        env.insert(MARK.to_owned(), "1".to_owned());
        env.extend(command.env.clone());
        let mut input = shell::enter(&dir, &env).into_bytes();
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
