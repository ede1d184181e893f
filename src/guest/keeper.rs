//! The keeper of one command: a small process between the guest and the command.
//!
//! Whatever the command starts stays below its keeper, which adopts orphans. So all of it can be found when it has to
//! end, and what a command left running is not taken for part of another one. The keeper lives until nothing is below it.
//! When the guest ends without a word, it ends a command that runs; what one left behind in peace may go on.

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
use super::message::{Stage, Start, Status};
use super::sys::{self, Reaped, Signal, Watched};

/// How long processes may take to go once they were killed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// What a keeper is told, in one byte. At the end of the stream it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Asks everything to end.
    Ask = b'a' as isize,
    /// Kills everything, and says so when it is done.
    Kill = b'k' as isize,
    /// The command ended well; what is left may go on.
    Release = b'r' as isize,
}

impl Order {
    fn of(byte: u8) -> Option<Self> {
        [Self::Ask, Self::Kill, Self::Release]
            .into_iter()
            .find(|order| *order as u8 == byte)
    }
}

/// What a keeper says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command could not be started; the keeper leaves.
    Failed(Stage, i32),
    /// The command itself has ended.
    Exited(Status),
    /// Nothing of it is left.
    Gone,
}

impl Report {
    const LENGTH: usize = 6;

    /// Waits for the next one; `None` when the keeper has left.
    pub(crate) fn read(mut from: impl Read) -> Option<Self> {
        let mut bytes = [0; Self::LENGTH];
        from.read_exact(&mut bytes).ok()?;
        let [what, stage, value @ ..] = bytes;
        let value = i32::from_be_bytes(value);
        match what {
            b'f' => Some(Self::Failed(Stage::of(stage)?, value)),
            b'c' => Some(Self::Exited(Status::Code(value))),
            b's' => Some(Self::Exited(Status::Signal(value))),
            b'g' => Some(Self::Gone),
            _ => None,
        }
    }

    fn bytes(self) -> [u8; Self::LENGTH] {
        let (what, stage, value) = match self {
            Self::Failed(stage, errno) => (b'f', stage.code(), errno),
            Self::Exited(Status::Signal(signal)) => (b's', 0, signal),
            Self::Exited(Status::Code(code)) => (b'c', 0, code),
            Self::Exited(Status::TimedOut | Status::Idle) | Self::Gone => (b'g', 0, 0),
        };
        let [a, b, c, d] = value.to_be_bytes();
        [what, stage, a, b, c, d]
    }
}

/// Everything a keeper needs.
#[derive(Debug)]
pub(crate) struct Duty {
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    stdio: Stdio3,
    guest: UnixStream,
}

/// The command's ends of its three streams.
#[derive(Debug)]
pub(crate) struct Stdio3 {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Duty {
    pub(crate) fn new(start: &Start<'_>, stdio: Stdio3, guest: UnixStream) -> Self {
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

/// Is the keeper of one command, to its end.
pub(crate) fn keep(duty: Duty) -> io::Result<()> {
    sys::silence([io::stderr().as_fd()])?;
    sys::new_session()?;
    sys::adopt_orphans()?;
    let children = sys::watch_children()?;
    let (mut guest, started) = launch(duty);
    match started {
        Ok(leader) => Keeper {
            guest,
            children,
            leader,
            released: false,
        }
        .work(),
        Err((stage, error)) => {
            let errno = error.raw_os_error().unwrap_or_default();
            guest.write_all(&Report::Failed(stage, errno).bytes())
        }
    }
}

struct Keeper {
    guest: UnixStream,
    /// Readable when a child has ended.
    children: PipeReader,
    leader: i32,
    released: bool,
}

/// Whether there is more for a keeper to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Leave,
}

impl Keeper {
    fn work(mut self) -> io::Result<()> {
        loop {
            let mut watched = [
                Watched::for_reading(&self.guest),
                Watched::for_reading(&self.children),
            ];
            sys::wait(&mut watched, None)?;
            let [order, child] = watched;
            if child.is_ready() {
                let _ = self.children.read(&mut [0; 64])?;
            }
            if self.bury() == Next::Leave {
                return Ok(());
            }
            if order.is_ready() && self.obey()? == Next::Leave {
                return Ok(());
            }
        }
    }

    /// Takes note of the children that have ended. When none is left and none will come, there is nothing to keep.
    fn bury(&mut self) -> Next {
        loop {
            match sys::reap() {
                Reaped::Ended { child, status } if child == self.leader => {
                    self.report(Report::Exited(status_of(status)));
                }
                Reaped::Ended { .. } => {}
                Reaped::NoChildren if self.released => return Next::Leave,
                Reaped::NoChildren | Reaped::NothingYet => return Next::GoOn,
            }
        }
    }

    fn obey(&mut self) -> io::Result<Next> {
        let mut byte = [0];
        if self.guest.read(&mut byte)? == 0 {
            if !self.released {
                self.kill()?;
            }
            return Ok(Next::Leave);
        }
        match Order::of(byte[0]) {
            Some(Order::Ask) => {
                for process in descendants::below(own_id(), &[])? {
                    sys::send(Signal::Term, process);
                    // One that was stopped could not do as it is asked.
                    sys::send(Signal::Continue, process);
                }
            }
            Some(Order::Kill) => {
                self.kill()?;
                self.report(Report::Gone);
            }
            Some(Order::Release) => self.released = true,
            None => {}
        }
        Ok(self.bury())
    }

    fn kill(&mut self) -> io::Result<()> {
        descendants::kill(own_id(), &[], PATIENCE, || {
            // What it returns is asked for again, by whoever called.
            let _ = self.bury();
        })
    }

    fn report(&mut self, report: Report) {
        // Nobody listens when the guest is gone; then the stream has ended, and that is seen next.
        let _ = self.guest.write_all(&report.bytes());
    }
}

/// Starts the command, and lets go of its streams.
#[expect(
    clippy::disallowed_methods,
    reason = "it runs inside the sandbox, not on the host"
)]
fn launch(duty: Duty) -> (UnixStream, Result<i32, (Stage, io::Error)>) {
    let Duty {
        argv,
        env,
        cwd,
        stdio,
        guest,
    } = duty;
    // Changed here and not by `Command`, which would then need a second `fork` in place of the cheaper `posix_spawn`.
    if let Err(error) = std::env::set_current_dir(cwd) {
        return (guest, Err((Stage::Directory, error)));
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
        Err(error) => (guest, Err((Stage::Program, error))),
    }
}

/// Finds the program on the command's own `PATH`; the standard library would `fork` to do so.
fn locate(argv: &[OsString], env: &[(OsString, OsString)]) -> io::Result<PathBuf> {
    const ENOENT: i32 = 2;
    let not_found = || io::Error::from_raw_os_error(ENOENT);
    let program = argv.first().ok_or_else(not_found)?;
    if program.as_bytes().contains(&b'/') {
        return Ok(program.into());
    }
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path);
    std::env::split_paths(path.map_or(OsStr::new(""), |path| path))
        .map(|folder| folder.join(program))
        .find(|file| is_program(file))
        .ok_or_else(not_found)
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn status_of(wait_status: i32) -> Status {
    let status = ExitStatus::from_raw(wait_status);
    match status.code() {
        Some(code) => Status::Code(code),
        None => Status::Signal(status.signal().unwrap_or_default()),
    }
}

fn own_id() -> i32 {
    std::process::id().cast_signed()
}
