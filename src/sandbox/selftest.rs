//! Whether a sandbox does what a run needs of it, tried out.

use std::time::Duration;

use serde::Serialize;

use super::{Sandbox, SandboxError};
use crate::exec::{Command, Discard, Exit, Status};

/// Nothing that is tried here takes longer, unless something is wrong.
const LONGEST: Duration = Duration::from_secs(60);

/// The most that is read of what a background process writes meanwhile.
const BEATS: u64 = 1 << 16;

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What should hold.
    pub name: String,
    /// What was seen in its place; `None` when it holds.
    pub seen: Option<String>,
}

/// Tries out what every run needs: commands, files, time limits, git, evidence, an end of all processes.
pub async fn selftest(sandbox: &dyn Sandbox) -> Vec<Check> {
    let trial = Trial { sandbox };
    let check = |name: &str, seen: Result<(), String>| Check {
        name: name.to_owned(),
        seen: seen.err(),
    };
    vec![
        check(
            "a command runs, its output and its errors apart",
            trial.output().await,
        ),
        check("an exit status comes back", trial.status().await),
        check("variables and input arrive", trial.variables_and_input().await),
        check("a file goes in and comes out", trial.file().await),
        check("a command is ended when its time is over", trial.time().await),
        check("git is there", trial.git().await),
        check("evidence is gathered", trial.evidence().await),
        check("what commands leave behind is ended", trial.end().await),
    ]
}

struct Trial<'a> {
    sandbox: &'a dyn Sandbox,
}

impl Trial<'_> {
    async fn output(&self) -> Result<(), String> {
        let exit = self.exec(Command::shell("echo out; echo err >&2")).await?;
        let seen = (exit.stdout.text(), exit.stderr.text());
        expect(
            exit.success() && seen == ("out\n".to_owned(), "err\n".to_owned()),
            &exit,
        )
    }

    async fn status(&self) -> Result<(), String> {
        let exit = self.exec(Command::shell("exit 7")).await?;
        expect(exit.status == Status::Code(7), &exit)
    }

    async fn variables_and_input(&self) -> Result<(), String> {
        let command = Command::shell("printf %s \"$TRIAL\"; cat").env("TRIAL", "one ");
        let exit = self.exec(command.stdin("two")).await?;
        expect(exit.success() && exit.stdout.text() == "one two", &exit)
    }

    async fn file(&self) -> Result<(), String> {
        let (path, bytes) = (self.sandbox.root().join("selftest"), b"\0\xff\n");
        self.sandbox
            .write(&path, bytes, 0o600)
            .await
            .map_err(|error| told(&error))?;
        let read = self.sandbox.read(&path, 16).await.map_err(|error| told(&error))?;
        self.sandbox.remove(&path).await.map_err(|error| told(&error))?;
        if read == bytes {
            Ok(())
        } else {
            Err(format!("{} bytes, and others than were written", read.len()))
        }
    }

    async fn time(&self) -> Result<(), String> {
        let exit = self
            .exec(Command::shell("sleep 50").timeout(Duration::from_millis(500)))
            .await?;
        expect(exit.status == Status::TimedOut, &exit)
    }

    async fn git(&self) -> Result<(), String> {
        let exit = self.exec(Command::new("git").arg("--version")).await?;
        expect(exit.success(), &exit)
    }

    async fn evidence(&self) -> Result<(), String> {
        let command = Command::shell("echo seen; exit 3").timeout(LONGEST);
        let exit = self.sandbox.witness(&command, &mut Discard).await;
        let exit = exit.map_err(|error| told(&error))?;
        let holds = exit.status == Status::Code(3) && exit.stdout.text() == "seen\n";
        expect(holds, &exit)
    }

    async fn end(&self) -> Result<(), String> {
        let file = self.sandbox.root().join("selftest-beats");
        let beating = format!(
            "(while sleep 0.1; do echo beat >> '{0}'; done) > /dev/null 2>&1 & until [ -s '{0}' ]; do sleep 0.1; done",
            file.display()
        );
        let exit = self.exec(Command::shell(beating)).await?;
        expect(exit.success(), &exit)?;
        self.sandbox.end_processes().await.map_err(|error| told(&error))?;
        let ended = self
            .sandbox
            .read(&file, BEATS)
            .await
            .map_err(|error| told(&error))?;
        tokio::time::sleep(Duration::from_millis(400)).await;
        let later = self
            .sandbox
            .read(&file, BEATS)
            .await
            .map_err(|error| told(&error))?;
        self.sandbox.remove(&file).await.map_err(|error| told(&error))?;
        if ended == later {
            Ok(())
        } else {
            Err("a process that was left in the background goes on".to_owned())
        }
    }

    async fn exec(&self, command: Command) -> Result<Exit, String> {
        let command = match command.timeout {
            Some(_) => command,
            None => command.timeout(LONGEST),
        };
        self.sandbox
            .exec(&command, &mut Discard)
            .await
            .map_err(|error| told(&error))
    }
}

fn expect(holds: bool, exit: &Exit) -> Result<(), String> {
    if holds {
        return Ok(());
    }
    let (stdout, stderr) = (exit.stdout.text(), exit.stderr.text());
    Err(format!(
        "it ended with {}, printed {stdout:?} and complained {stderr:?}",
        exit.status
    ))
}

/// An error with its causes.
fn told(error: &SandboxError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
