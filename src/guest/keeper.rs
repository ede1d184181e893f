//! The keeper of one command: a small process between the guest and the command.
//!
//! The keeper is a subreaper, so everything that the command starts remains its descendant. It can be found when the
//! command must end, and is not mistaken for a part of another command. The keeper lives until it has no descendants. If
//! the guest exits without notice, the keeper kills a running command; processes that a finished command left may go on.

use std::ffi::OsStr;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::descendants;
use super::message::{StartCommand, StartStage};
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
    Exited(ExitStatus),
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
            b'e' => Some(Self::Exited(ExitStatus::from_raw(value))),
            b'g' => Some(Self::Gone),
            _ => None,
        }
    }

    fn to_bytes(self) -> [u8; Self::LENGTH] {
        let (kind, stage, value) = match self {
            Self::Failed(stage, errno) => (b'f', stage as u8, errno),
            Self::Exited(status) => (b'e', 0, status.into_raw()),
            Self::Gone => (b'g', 0, 0),
        };
        let [a, b, c, d] = value.to_be_bytes();
        [kind, stage, a, b, c, d]
    }
}

/// The command's ends of its standard streams, and the keeper's end of its connection to the guest.
#[derive(Debug)]
pub(crate) struct KeeperStreams {
    pub(crate) stdin: Stdio,
    pub(crate) stdout: Stdio,
    pub(crate) stderr: Stdio,
    pub(crate) guest: UnixStream,
}

/// The process that keeps one command.
#[derive(Debug)]
pub(crate) struct Keeper {
    guest: UnixStream,
    /// Becomes readable when a child exits.
    child_exits: PipeReader,
    /// The process id of the command.
    command: i32,
    released: bool,
}

impl Keeper {
    /// Makes this process the keeper of a command and starts the command. Reports to the guest if that fails.
    pub(crate) fn start(start: &StartCommand<'_>, streams: KeeperStreams) -> io::Result<Self> {
        sys::redirect_to_dev_null([io::stderr().as_fd()])?;
        sys::new_process_session()?;
        sys::become_subreaper()?;
        let child_exits = sys::watch_child_exits()?;
        let KeeperStreams {
            stdin,
            stdout,
            stderr,
            mut guest,
        } = streams;
        let started = launch(start, [stdin, stdout, stderr]).or_else(|(stage, error)| {
            let errno = error.raw_os_error().unwrap_or_default();
            guest.write_all(&KeeperReport::Failed(stage, errno).to_bytes())?;
            Err(error)
        });
        Ok(Self {
            command: started?,
            guest,
            child_exits,
            released: false,
        })
    }

    /// Runs until the keeper has nothing left to do.
    pub(crate) fn run(mut self) -> io::Result<()> {
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
                ReapedChild::Exited { child, status } if child == self.command => {
                    self.report(KeeperReport::Exited(status));
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
                let gone = self.kill()?;
                // Otherwise the guest abandons the keeper, and tries it itself.
                if gone {
                    self.report(KeeperReport::Gone);
                }
            }
            Some(KeeperRequest::Release) => self.released = true,
            None => {}
        }
        Ok(self.reap_children())
    }

    /// Kills all descendants. Returns whether none is left.
    fn kill(&mut self) -> io::Result<bool> {
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

/// Starts the command and returns its process id. Closes the keeper's copies of its streams.
#[expect(
    clippy::disallowed_methods,
    reason = "it runs inside the sandbox, not on the host"
)]
fn launch(
    start: &StartCommand<'_>,
    [stdin, stdout, stderr]: [Stdio; 3],
) -> Result<i32, (StartStage, io::Error)> {
    let text = OsStr::from_bytes;
    // Not by `Command::current_dir`, which makes `Command` use `fork` instead of the cheaper `posix_spawn`.
    std::env::set_current_dir(text(start.cwd)).map_err(|error| (StartStage::Directory, error))?;
    let spawn = |program: PathBuf| {
        let mut args = start.argv.iter().copied().map(text);
        Command::new(program)
            .arg0(args.next().unwrap_or_default())
            .args(args)
            .env_clear()
            .envs(start.env.iter().map(|(name, value)| (text(name), text(value))))
            .process_group(0)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
    };
    let started = locate(start).and_then(spawn);
    let child = started.map_err(|error| (StartStage::Program, error))?;
    Ok(child.id().cast_signed())
}

/// Finds the program in the command's own `PATH`. The standard library would `fork` to do so.
fn locate(start: &StartCommand<'_>) -> io::Result<PathBuf> {
    const ENOENT: i32 = 2;
    let not_found = || io::Error::from_raw_os_error(ENOENT);
    let program = start.argv.first().ok_or_else(not_found)?;
    let name = OsStr::from_bytes(program);
    if program.contains(&b'/') {
        return Ok(name.into());
    }
    let path = start.env.iter().find(|(name, _)| *name == b"PATH");
    let dirs = path.map_or(OsStr::new(""), |(_, dirs)| OsStr::from_bytes(dirs));
    std::env::split_paths(dirs)
        .map(|dir| dir.join(name))
        .find(|file| is_program(file))
        .ok_or_else(not_found)
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}
