//! The self-test of a sandbox: whether it does what a run needs.

use std::time::Duration;

use serde::Serialize;

use super::Sandbox;
use crate::exec::{Command, Discard, Exit, ExitStatus};
use crate::text::error_chain;

/// Limit for each command of the self-test.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes that are read of the file that a background process writes to.
const MAX_BEATS: u64 = 1 << 16;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelftestCheck {
    /// The property that was checked.
    pub name: String,
    /// What was observed instead; `None` if the check passed.
    pub seen: Option<String>,
}

/// Checks what every run needs: commands, files, timeouts, git, evidence and the end of all processes.
pub async fn selftest(sandbox: &dyn Sandbox) -> Vec<SelftestCheck> {
    let test = Selftest { sandbox };
    let check = |name: &str, result: Result<(), String>| SelftestCheck {
        name: name.to_owned(),
        seen: result.err(),
    };
    vec![
        check("a command's output and errors are separate", test.output().await),
        check("an exit status is returned", test.status().await),
        check("variables and input are passed", test.variables_and_input().await),
        check("a file is written and read", test.file().await),
        check("a command ends at its timeout", test.timeout().await),
        check("git is installed", test.git().await),
        check("evidence is collected", test.evidence().await),
        check("background processes are ended", test.background().await),
    ]
}

struct Selftest<'a> {
    sandbox: &'a dyn Sandbox,
}

impl Selftest<'_> {
    async fn output(&self) -> Result<(), String> {
        let exit = self.exec(Command::shell("echo out; echo err >&2")).await?;
        let separate = exit.stdout.text() == "out\n" && exit.stderr.text() == "err\n";
        expect(exit.success() && separate, &exit)
    }

    async fn status(&self) -> Result<(), String> {
        let exit = self.exec(Command::shell("exit 7")).await?;
        expect(exit.status == ExitStatus::Code(7), &exit)
    }

    async fn variables_and_input(&self) -> Result<(), String> {
        let command = Command::shell("printf %s \"$TRIAL\"; cat").env("TRIAL", "one ");
        let exit = self.exec(command.stdin("two")).await?;
        expect(exit.success() && exit.stdout.text() == "one two", &exit)
    }

    async fn file(&self) -> Result<(), String> {
        let (path, bytes) = (self.sandbox.root().join("selftest"), b"\0\xff\n");
        self.sandbox
            .files()
            .write(&path, bytes, 0o600)
            .await
            .map_err(|error| error_chain(&error))?;
        let read = self
            .sandbox
            .files()
            .read(&path, 16)
            .await
            .map_err(|error| error_chain(&error))?;
        self.sandbox
            .files()
            .remove(&path)
            .await
            .map_err(|error| error_chain(&error))?;
        if read == bytes {
            Ok(())
        } else {
            Err(format!("{} bytes that differ from those written", read.len()))
        }
    }

    async fn timeout(&self) -> Result<(), String> {
        let exit = self
            .exec(Command::shell("sleep 50").timeout(Duration::from_millis(500)))
            .await?;
        expect(exit.status == ExitStatus::TimedOut, &exit)
    }

    async fn git(&self) -> Result<(), String> {
        let exit = self.exec(Command::new("git").arg("--version")).await?;
        expect(exit.success(), &exit)
    }

    async fn evidence(&self) -> Result<(), String> {
        let command = Command::shell("echo seen; exit 3").timeout(TIMEOUT);
        let exit = self.sandbox.exec_trusted(&command, &mut Discard).await;
        let exit = exit.map_err(|error| error_chain(&error))?;
        let holds = exit.status == ExitStatus::Code(3) && exit.stdout.text() == "seen\n";
        expect(holds, &exit)
    }

    async fn background(&self) -> Result<(), String> {
        let file = self.sandbox.root().join("selftest-beats");
        let line = format!(
            "(while sleep 0.1; do echo beat >> '{0}'; done) > /dev/null 2>&1 & until [ -s '{0}' ]; do sleep 0.1; done",
            file.display()
        );
        let exit = self.exec(Command::shell(line)).await?;
        expect(exit.success(), &exit)?;
        self.sandbox
            .end_processes()
            .await
            .map_err(|error| error_chain(&error))?;
        let read = async || {
            let read = self.sandbox.files().read(&file, MAX_BEATS).await;
            read.map_err(|error| error_chain(&error))
        };
        let before = read().await?;
        tokio::time::sleep(Duration::from_millis(400)).await;
        let after = read().await?;
        self.sandbox
            .files()
            .remove(&file)
            .await
            .map_err(|error| error_chain(&error))?;
        if before == after {
            Ok(())
        } else {
            Err("a background process is still running".to_owned())
        }
    }

    async fn exec(&self, command: Command) -> Result<Exit, String> {
        let command = match command.timeout {
            Some(_) => command,
            None => command.timeout(TIMEOUT),
        };
        self.sandbox
            .exec(&command, &mut Discard)
            .await
            .map_err(|error| error_chain(&error))
    }
}

fn expect(holds: bool, exit: &Exit) -> Result<(), String> {
    if holds {
        return Ok(());
    }
    let (stdout, stderr) = (exit.stdout.text(), exit.stderr.text());
    Err(format!("{}, stdout {stdout:?}, stderr {stderr:?}", exit.status))
}
