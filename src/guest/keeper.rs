//! The keeper of one command: a small process between the guest and the command.
//!
//! The keeper is a subreaper, so everything that the command starts remains its descendant. It can be found when the
//! command must end, and is not mistaken for a part of another command. The keeper lives until it has no descendants. If
//! the guest exits without notice, the keeper kills a running command; processes that a finished command left may go on.

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::descendants;
use super::message::{CommandStatus, StartCommand, StartStage};
use super::sys::{self, PollEntry, ReapedChild, Signal};

/// How long killed processes may take to disappear.
pub(crate) const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// A request to a keeper, as one byte. The keeper exits at the end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeeperRequest {
    /// Send `SIGTERM` to all descendants.
    Terminate = b'a' as isize,
    /// Kill all descendants, and report when they are gone.
    Kill = b'k' as isize,
    /// The command has ended; processes that it left may go on.
    Release = b'r' as isize,
}

impl KeeperRequest {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Terminate, Self::Kill, Self::Release]
            .into_iter()
            .find(|request| *request as u8 == byte)
    }
}

/// A report of a keeper to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeeperReport {
    /// The command could not be started: the failed step and `errno`. The keeper exits.
    Failed(StartStage, i32),
    /// The command itself has exited.
    Exited(CommandStatus),
    /// All descendants are gone.
    Gone,
}

impl KeeperReport {
    const LENGTH: usize = 6;

    /// Waits for the next report; `None` if the keeper has exited.
    pub(crate) fn read(mut from: impl Read) -> Option<Self> {
        let mut bytes = [0; Self::LENGTH];
        from.read_exact(&mut bytes).ok()?;
        let [kind, stage, value @ ..] = bytes;
        let value = i32::from_be_bytes(value);
        match kind {
            b'f' => Some(Self::Failed(StartStage::from_code(stage)?, value)),
            b'c' => Some(Self::Exited(CommandStatus::Code(value))),
            b's' => Some(Self::Exited(CommandStatus::Signal(value))),
            b'g' => Some(Self::Gone),
            _ => None,
        }
    }

    fn to_bytes(self) -> [u8; Self::LENGTH] {
        let (kind, stage, value) = match self {
            Self::Failed(stage, errno) => (b'f', stage as u8, errno),
            Self::Exited(CommandStatus::Signal(signal)) => (b's', 0, signal),
            Self::Exited(CommandStatus::Code(code)) => (b'c', 0, code),
            Self::Exited(CommandStatus::TimedOut | CommandStatus::Idle) | Self::Gone => (b'g', 0, 0),
        };
        let [a, b, c, d] = value.to_be_bytes();
        [kind, stage, a, b, c, d]
    }
}

/// The command that a keeper runs, and its connection to the guest.
#[derive(Debug)]
pub(crate) struct KeeperTask {
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    stdio: CommandStdio,
    guest: UnixStream,
}

/// The command's ends of its standard streams.
#[derive(Debug)]
pub(crate) struct CommandStdio {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl KeeperTask {
    pub(crate) fn new(start: &StartCommand<'_>, stdio: CommandStdio, guest: UnixStream) -> Self {
        let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_owned());
        Self {
            argv: start.argv.iter().map(|arg| owned(arg)).collect(),
            env: start
                .env
                .iter()
                .map(|(name, value)| (owned(name), owned(value)))
                .collect(),
            cwd: owned(start.cwd).into(),
            stdio,
            guest,
        }
    }
}

/// Runs as the keeper of one command, until the keeper has nothing left to do.
pub(crate) fn run(task: KeeperTask) -> io::Result<()> {
    sys::redirect_to_dev_null([io::stderr().as_fd()])?;
    sys::new_process_session()?;
    sys::become_subreaper()?;
    let child_exits = sys::watch_child_exits()?;
    let (mut guest, started) = launch(task);
    match started {
        Ok(command) => Keeper {
            guest,
            child_exits,
            command,
            released: false,
        }
        .run(),
        Err((stage, error)) => {
            let errno = error.raw_os_error().unwrap_or_default();
            guest.write_all(&KeeperReport::Failed(stage, errno).to_bytes())
        }
    }
}

struct Keeper {
    guest: UnixStream,
    /// Becomes readable when a child exits.
    child_exits: PipeReader,
    /// The process id of the command.
    command: i32,
    released: bool,
}

impl Keeper {
    fn run(mut self) -> io::Result<()> {
        loop {
            let mut entries = [
                PollEntry::for_reading(&self.guest),
                PollEntry::for_reading(&self.child_exits),
            ];
            sys::poll_files(&mut entries, None)?;
            let [request, child] = entries;
            if child.is_ready() {
                let _ = self.child_exits.read(&mut [0; 64])?;
            }
            if self.reap_children() {
                return Ok(());
            }
            if request.is_ready() && self.handle_request()? {
                return Ok(());
            }
        }
    }

    /// Reaps all children that have exited. Returns whether the keeper is finished: it was released and has no children.
    fn reap_children(&mut self) -> bool {
        loop {
            match sys::reap() {
                ReapedChild::Exited { child, wait_status } if child == self.command => {
                    self.report(KeeperReport::Exited(parse_wait_status(wait_status)));
                }
                ReapedChild::Exited { .. } => {}
                ReapedChild::NoChildren => return self.released,
                ReapedChild::NoneYet => return false,
            }
        }
    }

    /// Handles one request. Returns whether the keeper is finished.
    fn handle_request(&mut self) -> io::Result<bool> {
        let mut byte = [0];
        if self.guest.read(&mut byte)? == 0 {
            if !self.released {
                self.kill()?;
            }
            return Ok(true);
        }
        match KeeperRequest::from_byte(byte[0]) {
            Some(KeeperRequest::Terminate) => {
                for process in descendants::descendants(own_pid(), &[])? {
                    sys::send_signal(Signal::Term, process);
                    // A stopped process does not handle the signal.
                    sys::send_signal(Signal::Continue, process);
                }
            }
            Some(KeeperRequest::Kill) => {
                self.kill()?;
                self.report(KeeperReport::Gone);
            }
            Some(KeeperRequest::Release) => self.released = true,
            None => {}
        }
        Ok(self.reap_children())
    }

    fn kill(&mut self) -> io::Result<()> {
        descendants::kill(own_pid(), &[], KILL_TIMEOUT, || {
            // The caller reaps again and uses that result.
            let _ = self.reap_children();
        })
    }

    fn report(&mut self, report: KeeperReport) {
        // If the guest is gone, the end of the stream is seen next.
        let _ = self.guest.write_all(&report.to_bytes());
    }
}

/// Starts the command, and closes the keeper's copies of its streams.
#[expect(
    clippy::disallowed_methods,
    reason = "it runs inside the sandbox, not on the host"
)]
fn launch(task: KeeperTask) -> (UnixStream, Result<i32, (StartStage, io::Error)>) {
    let KeeperTask {
        argv,
        env,
        cwd,
        stdio,
        guest,
    } = task;
    // Not by `Command::current_dir`, which makes `Command` use `fork` instead of the cheaper `posix_spawn`.
    if let Err(error) = std::env::set_current_dir(cwd) {
        return (guest, Err((StartStage::Directory, error)));
    }
    let started = locate(&argv, &env).and_then(|program| {
        Command::new(program)
            .arg0(&argv[0])
            .args(&argv[1..])
            .env_clear()
            .envs(env)
            .process_group(0)
            .stdin(stdio.stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(stdio.stdout)
            .stderr(stdio.stderr)
            .spawn()
    });
    match started {
        Ok(child) => (guest, Ok(child.id().cast_signed())),
        Err(error) => (guest, Err((StartStage::Program, error))),
    }
}

/// Finds the program in the command's own `PATH`. The standard library would `fork` to do so.
fn locate(argv: &[OsString], env: &[(OsString, OsString)]) -> io::Result<PathBuf> {
    const ENOENT: i32 = 2;
    let not_found = || io::Error::from_raw_os_error(ENOENT);
    let program = argv.first().ok_or_else(not_found)?;
    if program.as_bytes().contains(&b'/') {
        return Ok(program.into());
    }
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path);
    std::env::split_paths(path.map_or(OsStr::new(""), |path| path))
        .map(|dir| dir.join(program))
        .find(|file| is_program(file))
        .ok_or_else(not_found)
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn parse_wait_status(wait_status: i32) -> CommandStatus {
    let status = ExitStatus::from_raw(wait_status);
    match status.code() {
        Some(code) => CommandStatus::Code(code),
        None => CommandStatus::Signal(status.signal().unwrap_or_default()),
    }
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}
