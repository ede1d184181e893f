//! Runs `tart`.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::Deserialize;

use super::super::vm::host_cli;
use super::super::{SandboxError, SandboxErrorKind};
use crate::exec::{Command, Host};

/// How long a list of VMs is reused.
const LIST_AGE: Duration = Duration::from_secs(2);

/// How long a VM may take to shut down before it is killed.
const STOP_SECONDS: &str = "30";

/// How long a `tart run` may take to exit after a signal, and the pause between two polls.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const END_PAUSE: Duration = Duration::from_millis(50);

/// The exit code of `tart` if a VM does not exist or does not run.
const MISSING: i32 = 2;

/// A shell script that starts a command in the background and prints its process id.
const DETACH: &str = "log=$1; shift; \"$@\" </dev/null >\"$log\" 2>&1 & echo $!";

/// The program `tart`.
#[derive(Clone, Debug)]
pub(super) struct Tart {
    pub(super) host: Host,
    cache: Arc<Mutex<Option<CachedList>>>,
}

#[derive(Debug)]
struct CachedList {
    at: Instant,
    list: Vec<TartVm>,
}

/// A VM in the output of `tart list`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TartVm {
    pub(super) name: String,
    source: String,
    state: String,
}

impl TartVm {
    pub(super) fn is_running(&self) -> bool {
        self.state == "running"
    }
}

/// A `tart run` process. It lives as long as its VM.
#[derive(Debug)]
pub(super) struct TartRun {
    pid: Option<Pid>,
    log: std::path::PathBuf,
}

impl TartRun {
    pub(super) fn is_alive(&self) -> bool {
        self.pid
            .is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
    }

    /// Ends the process and with it the VM, whatever its state.
    pub(super) async fn end(&self) {
        let Some(pid) = self.pid else { return };
        for signal in [Signal::TERM, Signal::KILL] {
            // An error means that it has exited.
            let _ = kill_process(pid, signal);
            let deadline = tokio::time::Instant::now() + END_TIMEOUT;
            while self.is_alive() && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(END_PAUSE).await;
            }
        }
    }

    /// The output of the process.
    pub(super) fn output(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).trim().to_owned()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VmDetails {
    #[serde(rename = "OS")]
    os: String,
}

/// A `tart` command that does not remove cached images.
pub(super) fn command<const N: usize>(args: [&str; N]) -> Command {
    Command::new("tart").args(args).env("TART_NO_AUTO_PRUNE", "1")
}

impl Tart {
    pub(super) fn new(host: Host) -> Self {
        Self {
            host,
            cache: Arc::default(),
        }
    }

    pub(super) fn is_installed(&self) -> bool {
        self.host.has_program("tart")
    }

    /// Runs a command that must succeed.
    pub(super) async fn run(&self, command: Command) -> Result<String, SandboxError> {
        host_cli::run(&self.host, command).await
    }

    /// The VMs of this user. The list may be up to [`LIST_AGE`] old.
    pub(super) async fn list(&self) -> Result<Vec<TartVm>, SandboxError> {
        if let Some(CachedList { at, list }) = &*self.cache()
            && at.elapsed() < LIST_AGE
        {
            return Ok(list.clone());
        }
        let command = command(["list", "--source", "local", "--format", "json"]);
        let mut list: Vec<TartVm> = host_cli::run_json(&self.host, command).await?;
        list.retain(|vm| vm.source == "local");
        *self.cache() = Some(CachedList {
            at: Instant::now(),
            list: list.clone(),
        });
        Ok(list)
    }

    /// Whether a VM runs macOS.
    pub(super) async fn is_mac(&self, name: &str) -> Result<bool, SandboxError> {
        let command = command(["get", name, "--format", "json"]);
        let line = command.to_string();
        let exit = host_cli::try_run(&self.host, command).await?;
        if exit.status.shell_code() == MISSING {
            return Ok(false);
        }
        let details: VmDetails = host_cli::parse_json(&line, &exit.stdout.text())?;
        Ok(details.os == "darwin")
    }

    /// Clones a VM or an image. Fails if a VM of that name exists, which `tart` would overwrite.
    pub(super) async fn clone_vm(&self, from: &str, name: &str) -> Result<(), SandboxError> {
        self.clear_cache();
        if self.list().await?.iter().any(|vm| vm.name == name) {
            let message = format!("cannot clone `{from}`: a VM with the name `{name}` exists");
            return Err(SandboxError::new(SandboxErrorKind::Failed, message)
                .with_hint(Some("if the VM is not in use, remove it with `tart delete`")));
        }
        self.change(command(["clone", from, name])).await
    }

    /// Starts a VM. Its process outlives this one.
    pub(super) async fn start(&self, run: Command, log: &Path) -> Result<TartRun, SandboxError> {
        let detached = Command::new("/bin/sh")
            .args(["-c", DETACH, "sh", &log.to_string_lossy(), "tart"])
            .args(run.args);
        let detached = Command {
            env: run.env,
            ..detached
        };
        let pid = self.run(detached).await?;
        self.clear_cache();
        Ok(TartRun {
            pid: pid.trim().parse().ok().and_then(Pid::from_raw),
            log: log.to_owned(),
        })
    }

    /// Stops a VM. It is fine if it does not run.
    pub(super) async fn stop(&self, name: &str) -> Result<(), SandboxError> {
        self.change(command(["stop", name, "--timeout", STOP_SECONDS]))
            .await
    }

    /// Removes a stopped VM. It is fine if it does not exist.
    pub(super) async fn delete(&self, name: &str) -> Result<(), SandboxError> {
        self.change(command(["delete", name])).await
    }

    /// Runs a command that changes the list of VMs. It is fine if the VM does not exist.
    async fn change(&self, command: Command) -> Result<(), SandboxError> {
        let line = command.to_string();
        let exit = host_cli::try_run(&self.host, command).await?;
        self.clear_cache();
        match exit.status.shell_code() {
            0 | MISSING => Ok(()),
            _ => Err(host_cli::failed(&line, &exit)),
        }
    }

    fn clear_cache(&self) {
        *self.cache() = None;
    }

    fn cache(&self) -> MutexGuard<'_, Option<CachedList>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
