//! The self-test of a sandbox: whether it does what a run needs.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Sandbox, SandboxError};
use crate::exec::{Command, Discard, Exit, ExitStatus};
use crate::text::{counted, error_chain};

/// Limit for each command of the self-test.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes that are read of the file that a background process writes to.
const MAX_BEATS: u64 = 1 << 16;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SelftestCheck {
    /// The property that was checked.
    pub name: String,
    /// What was observed instead; `None` if the check passed.
    pub seen: Option<String>,
    /// What to do about a check that failed. `None` if that depends on how the provider is set up.
    pub next_step: Option<String>,
}

/// The name of the check that git is installed.
pub(crate) const GIT: &str = "git is installed";

/// Checks what every run needs: commands, files, timeouts, git, evidence and the end of all processes.
pub async fn selftest(sandbox: &dyn Sandbox) -> Vec<SelftestCheck> {
    let test = Selftest { sandbox };
    let check = |name: &str, seen: Result<Option<String>, SandboxError>| {
        let hint = seen.as_ref().err().and_then(SandboxError::hint);
        SelftestCheck {
            name: name.to_owned(),
            next_step: hint.map(str::to_owned),
            seen: seen.unwrap_or_else(|error| Some(error_chain(&error))),
        }
    };
    vec![
        check("a command's output and errors are separate", test.output().await),
        check("an exit status is returned", test.status().await),
        check("variables and input are passed", test.variables_and_input().await),
        check("a file is written and read", test.file().await),
        check("a command ends at its timeout", test.timeout().await),
        check(GIT, test.git().await),
        check("evidence is collected", test.evidence().await),
        check("background processes are ended", test.background().await),
    ]
}

struct Selftest<'a> {
    sandbox: &'a dyn Sandbox,
}

/// Each check returns what it observed instead of what it should; `None` if it passed.
impl Selftest<'_> {
    async fn output(&self) -> Result<Option<String>, SandboxError> {
        let exit = self.exec(Command::shell("echo out; echo err >&2")).await?;
        let separate = exit.stdout.text() == "out\n" && exit.stderr.text() == "err\n";
        Ok(unless(exit.success() && separate, &exit))
    }

    async fn status(&self) -> Result<Option<String>, SandboxError> {
        let exit = self.exec(Command::shell("exit 7")).await?;
        Ok(unless(exit.status == ExitStatus::Code(7), &exit))
    }

    async fn variables_and_input(&self) -> Result<Option<String>, SandboxError> {
        let command = Command::shell("printf %s \"$TRIAL\"; cat").env("TRIAL", "one ");
        let exit = self.exec(command.stdin("two")).await?;
        Ok(unless(exit.success() && exit.stdout.text() == "one two", &exit))
    }

    async fn file(&self) -> Result<Option<String>, SandboxError> {
        let (files, path) = (self.sandbox.files(), self.sandbox.root().join("selftest"));
        let bytes = b"\0\xff\n";
        files.write(&path, bytes, 0o600).await?;
        let read = files.read(&path, 16).await?;
        files.remove(&path).await?;
        let differ = || {
            format!(
                "read {}, which differ from those written",
                counted(read.len(), "byte")
            )
        };
        Ok((read != bytes).then(differ))
    }

    async fn timeout(&self) -> Result<Option<String>, SandboxError> {
        let command = Command::shell("sleep 50").timeout(Duration::from_millis(500));
        let exit = self.exec(command).await?;
        Ok(unless(exit.status == ExitStatus::TimedOut, &exit))
    }

    async fn git(&self) -> Result<Option<String>, SandboxError> {
        let exit = self.exec(Command::new("git").arg("--version")).await?;
        Ok(unless(exit.success(), &exit))
    }

    async fn evidence(&self) -> Result<Option<String>, SandboxError> {
        let command = Command::shell("echo seen; exit 3").timeout(TIMEOUT);
        let exit = self.sandbox.exec_trusted(&command, &mut Discard).await?;
        let holds = exit.status == ExitStatus::Code(3) && exit.stdout.text() == "seen\n";
        Ok(unless(holds, &exit))
    }

    async fn background(&self) -> Result<Option<String>, SandboxError> {
        let file = self.sandbox.root().join("selftest-beats");
        let line = format!(
            "(while sleep 0.1; do echo beat >> '{0}'; done) > /dev/null 2>&1 & until [ -s '{0}' ]; do sleep 0.1; done",
            file.display()
        );
        let exit = self.exec(Command::shell(line)).await?;
        if let Some(seen) = unless(exit.success(), &exit) {
            return Ok(Some(seen));
        }
        self.sandbox.end_processes().await?;
        let files = self.sandbox.files();
        let before = files.read(&file, MAX_BEATS).await?;
        tokio::time::sleep(Duration::from_millis(400)).await;
        let after = files.read(&file, MAX_BEATS).await?;
        files.remove(&file).await?;
        Ok((before != after).then(|| "a background process is still running".to_owned()))
    }

    async fn exec(&self, mut command: Command) -> Result<Exit, SandboxError> {
        command.timeout.get_or_insert(TIMEOUT);
        self.sandbox.exec(&command, &mut Discard).await
    }
}

/// Describes the exit unless the check holds.
fn unless(holds: bool, exit: &Exit) -> Option<String> {
    let (stdout, stderr) = (exit.stdout.text(), exit.stderr.text());
    (!holds).then(|| format!("{}, stdout {stdout:?}, stderr {stderr:?}", exit.status))
}
