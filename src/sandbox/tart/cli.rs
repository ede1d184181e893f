//! `tart`, as it is called.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::Deserialize;

use super::super::machine::tool;
use super::super::{SandboxError, SandboxErrorKind};
use crate::exec::{Command, Host};

/// For how long a list of machines is good enough.
const LIST_AGE: Duration = Duration::from_secs(2);

/// How long a machine may take to shut down before it is cut off.
const STOP_SECONDS: &str = "30";

/// How long a `tart run` may take to end when it is told to, and how often that is looked at.
const END_PATIENCE: Duration = Duration::from_secs(5);
const END_PAUSE: Duration = Duration::from_millis(50);

/// What `tart` ends with when there is no such machine, or it does not run.
const MISSING: i32 = 2;

/// Starts a command that outlives whoever started it, and prints its number.
const DETACH: &str = "log=$1; shift; \"$@\" </dev/null >\"$log\" 2>&1 & echo $!";

/// `tart` on this machine.
#[derive(Clone, Debug)]
pub(super) struct Tart {
    pub(super) host: Host,
    seen: Arc<Mutex<Option<Seen>>>,
}

/// The machines there were at some time.
#[derive(Debug)]
struct Seen {
    at: Instant,
    list: Vec<Vm>,
}

/// A machine, as `tart list` has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Vm {
    pub(super) name: String,
    source: String,
    state: String,
}

impl Vm {
    /// Whether it runs. The word is in lower case.
    pub(super) fn is_running(&self) -> bool {
        self.state == "running"
    }
}

/// A `tart run`: it lives as long as its machine.
#[derive(Debug)]
pub(super) struct RunChild {
    pid: Option<Pid>,
    log: std::path::PathBuf,
}

impl RunChild {
    /// Whether it still runs.
    pub(super) fn lives(&self) -> bool {
        self.pid
            .is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
    }

    /// Ends it, and its machine with it, in whatever state that is.
    pub(super) async fn end(&self) {
        let Some(pid) = self.pid else { return };
        for signal in [Signal::TERM, Signal::KILL] {
            // One that has ended is what is wanted.
            let _ = kill_process(pid, signal);
            let give_up = tokio::time::Instant::now() + END_PATIENCE;
            while self.lives() && tokio::time::Instant::now() < give_up {
                tokio::time::sleep(END_PAUSE).await;
            }
        }
    }

    /// What it said.
    pub(super) fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).trim().to_owned()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Details {
    #[serde(rename = "OS")]
    os: String,
}

/// A command of the program. What it has cached stays where it is, whatever is cloned.
pub(super) fn command<const N: usize>(args: [&str; N]) -> Command {
    Command::new("tart").args(args).env("TART_NO_AUTO_PRUNE", "1")
}

impl Tart {
    pub(super) fn new(host: Host) -> Self {
        Self {
            host,
            seen: Arc::default(),
        }
    }

    pub(super) fn is_here(&self) -> bool {
        self.host.has_program("tart")
    }

    /// Runs a command that must succeed.
    pub(super) async fn run(&self, command: Command) -> Result<String, SandboxError> {
        tool::run(&self.host, command).await
    }

    /// The machines of this user, as they are or were a moment ago.
    pub(super) async fn list(&self) -> Result<Vec<Vm>, SandboxError> {
        if let Some(Seen { at, list }) = &*self.seen()
            && at.elapsed() < LIST_AGE
        {
            return Ok(list.clone());
        }
        let command = command(["list", "--source", "local", "--format", "json"]);
        let line = command.to_string();
        let text = self.run(command).await?;
        let mut list: Vec<Vm> = serde_json::from_str(&text).map_err(|error| tool::nonsense(&line, &error))?;
        list.retain(|vm| vm.source == "local");
        *self.seen() = Some(Seen {
            at: Instant::now(),
            list: list.clone(),
        });
        Ok(list)
    }

    /// Whether a machine is a Mac inside.
    pub(super) async fn is_mac(&self, name: &str) -> Result<bool, SandboxError> {
        let command = command(["get", name, "--format", "json"]);
        let line = command.to_string();
        let (_, exit) = tool::try_run(&self.host, command).await?;
        if exit.status.shell_code() == MISSING {
            return Ok(false);
        }
        let text = exit.stdout.text();
        let details: Details = serde_json::from_str(&text).map_err(|error| tool::nonsense(&line, &error))?;
        Ok(details.os == "darwin")
    }

    /// Makes a machine from another one or from an image. `tart` would replace one of that name without a word.
    pub(super) async fn clone_vm(&self, from: &str, name: &str) -> Result<(), SandboxError> {
        self.forget();
        if self.list().await?.iter().any(|vm| vm.name == name) {
            let message = format!("cannot clone `{from}`: a VM with the name `{name}` exists");
            return Err(SandboxError::new(SandboxErrorKind::Failed, message)
                .with_hint(Some("if the VM is not in use, remove it with `tart delete`")));
        }
        self.change(command(["clone", from, name])).await
    }

    /// Starts a machine; the command lives as long as it, and longer than this process.
    pub(super) async fn start(&self, run: Command, log: &Path) -> Result<RunChild, SandboxError> {
        let detached = Command::new("/bin/sh")
            .args(["-c", DETACH, "sh", &log.to_string_lossy(), "tart"])
            .args(run.args);
        let detached = Command {
            env: run.env,
            ..detached
        };
        let pid = self.run(detached).await?;
        self.forget();
        Ok(RunChild {
            pid: pid.trim().parse().ok().and_then(Pid::from_raw),
            log: log.to_owned(),
        })
    }

    /// Stops a machine; one that does not run is fine.
    pub(super) async fn stop(&self, name: &str) -> Result<(), SandboxError> {
        self.change(command(["stop", name, "--timeout", STOP_SECONDS]))
            .await
    }

    /// Removes a machine that does not run; one that is not there is fine.
    pub(super) async fn delete(&self, name: &str) -> Result<(), SandboxError> {
        self.change(command(["delete", name])).await
    }

    /// Runs a command after which a list is no longer true. What is not there needs no change.
    async fn change(&self, command: Command) -> Result<(), SandboxError> {
        let (line, exit) = tool::try_run(&self.host, command).await?;
        self.forget();
        match exit.status.shell_code() {
            0 | MISSING => Ok(()),
            _ => Err(tool::failed(line, &exit)),
        }
    }

    fn forget(&self) {
        *self.seen() = None;
    }

    fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
