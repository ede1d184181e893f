//! Runs `tart`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::Deserialize;
use tokio::time::sleep;

use super::super::vm::host_cli;
use super::super::{SandboxActivity, SandboxError, SandboxErrorKind};
use super::{MAX_RUNNING_MACS, too_many_macs, unavailable};
use crate::exec::{Command, Host};

/// How long a list of VMs is reused.
const LIST_AGE: Duration = Duration::from_secs(2);

/// How long a VM may take to shut down before it is killed.
const STOP_SECONDS: &str = "30";

/// The pause between two polls of a VM that starts: short at first, because a VM that was cloned from a suspended one is
/// ready at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Limit for one poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(10);

/// What macOS prints when Apple's limit of running VMs is reached.
const LIMIT_REACHED: &str = "exceeds the system limit";

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
    /// The last list of VMs, and when it was read.
    cache: Arc<Mutex<CachedVms>>,
}

/// The VMs by name, and when they were listed.
type CachedVms = Option<(Instant, BTreeMap<String, SandboxActivity>)>;

/// A `tart run` process. It lives as long as its VM.
struct TartRun {
    pid: Option<Pid>,
    log: PathBuf,
}

impl TartRun {
    fn is_alive(&self) -> bool {
        self.pid
            .is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
    }

    /// Ends the process and with it the VM, whatever its state.
    async fn end(&self) {
        let Some(pid) = self.pid else { return };
        for signal in [Signal::TERM, Signal::KILL] {
            // An error means that it has exited.
            let _ = kill_process(pid, signal);
            let deadline = tokio::time::Instant::now() + END_TIMEOUT;
            while self.is_alive() && tokio::time::Instant::now() < deadline {
                sleep(END_PAUSE).await;
            }
        }
    }

    /// The error for a process that exited before its VM was ready.
    fn exited(&self) -> SandboxError {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let output = String::from_utf8_lossy(&log);
        if output.contains(LIMIT_REACHED) {
            return too_many_macs(MAX_RUNNING_MACS);
        }
        let message = format!("`tart run` exited before the VM was ready: {}", output.trim());
        SandboxError::new(SandboxErrorKind::Failed, message)
            .with_hint(Some("run `tart run` by hand to see the screen of the VM"))
    }
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

    /// The VMs of this user by name. The list may be up to [`LIST_AGE`] old.
    pub(super) async fn list(&self) -> Result<BTreeMap<String, SandboxActivity>, SandboxError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct ListedVm {
            name: String,
            source: String,
            state: String,
        }
        if let Some((at, list)) = &*self.cache()
            && at.elapsed() < LIST_AGE
        {
            return Ok(list.clone());
        }
        let command = command(["list", "--source", "local", "--format", "json"]);
        let vms: Vec<ListedVm> = host_cli::run_json(&self.host, command).await?;
        let local = vms.into_iter().filter(|vm| vm.source == "local");
        let list: BTreeMap<String, SandboxActivity> = local
            .map(|vm| match vm.state.as_str() {
                "running" => (vm.name, SandboxActivity::Running),
                _ => (vm.name, SandboxActivity::Stopped),
            })
            .collect();
        *self.cache() = Some((Instant::now(), list.clone()));
        Ok(list)
    }

    /// Whether a VM runs macOS.
    pub(super) async fn is_mac(&self, name: &str) -> Result<bool, SandboxError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "UPPERCASE")]
        struct VmDetails {
            os: String,
        }
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
        *self.cache() = None;
        if self.list().await?.contains_key(name) {
            let message = format!("cannot clone `{from}`: a VM with the name `{name}` exists");
            return Err(SandboxError::new(SandboxErrorKind::Failed, message)
                .with_hint(Some("if the VM is not in use, remove it with `tart delete`")));
        }
        let cloned = host_cli::run(&self.host, command(["clone", from, name])).await;
        *self.cache() = None;
        cloned.map(drop)
    }

    /// Starts a VM, and waits until commands can be run in it. The process `run` outlives this one. Fails early if it
    /// exits.
    pub(super) async fn start(
        &self,
        vm: &str,
        run: Command,
        log: PathBuf,
        timeout: Duration,
    ) -> Result<(), SandboxError> {
        let run = self.detach(run, log).await?;
        let deadline = Instant::now() + timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let poll = command(["exec", vm, "true"]).timeout(POLL_TIMEOUT);
            let exit = host_cli::try_run(&self.host, poll).await?;
            if exit.success() {
                return Ok(());
            }
            if !run.is_alive() {
                return Err(run.exited());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The VM may still be starting, and a running VM cannot be removed.
                run.end().await;
                return Err(unavailable(&format!(
                    "the guest agent in the VM `{vm}` did not respond within {timeout:?}: {}",
                    exit.stderr.text().trim()
                ))
                .with_hint(Some(
                    "install the Tart Guest Agent in the image, or raise `timers.boot_seconds`",
                )));
            }
            sleep(pause.min(left)).await;
            pause = MAX_PAUSE.min(2 * pause);
        }
    }

    async fn detach(&self, run: Command, log: PathBuf) -> Result<TartRun, SandboxError> {
        let detached = Command {
            env: run.env,
            ..Command::new("/bin/sh")
                .args(["-c", DETACH, "sh", &log.to_string_lossy(), "tart"])
                .args(run.args)
        };
        let pid = host_cli::run(&self.host, detached).await?;
        *self.cache() = None;
        Ok(TartRun {
            pid: pid.trim().parse().ok().and_then(Pid::from_raw),
            log,
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
        *self.cache() = None;
        match exit.status.shell_code() {
            0 | MISSING => Ok(()),
            _ => Err(host_cli::failed(&line, &exit)),
        }
    }

    fn cache(&self) -> MutexGuard<'_, CachedVms> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
