//! What the standard library does not offer of the system. This file and `sys_net.rs` are the only ones of ralph with
//! `unsafe` in them. The numbers are those of Linux on every processor that Rust's own builds support.

use std::ffi::{CStr, c_char, c_int, c_short, c_ulong, c_void};
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

unsafe extern "C" {
    fn prctl(option: c_int, ...) -> c_int;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn fork() -> c_int;
    fn setsid() -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn kill(process: c_int, signal: c_int) -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn poll(fds: *mut Watched, count: c_ulong, milliseconds: c_int) -> c_int;
    fn signal(signal: c_int, handler: usize) -> usize;
    fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize;
    fn unshare(flags: c_int) -> c_int;
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
}

/// What a process can have a view of its own of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Namespace {
    User = 0x1000_0000,
    Network = 0x4000_0000,
}

/// Gives this process a view of its own.
pub(crate) fn leave(namespace: Namespace) -> io::Result<()> {
    // SAFETY: takes a number, touches no memory of ours.
    checked(unsafe { unshare(namespace as c_int) })
}

/// Mounts an empty file system here.
pub(crate) fn mount_nothing_at(target: &CStr) -> io::Result<()> {
    let kind = c"tmpfs".as_ptr();
    // SAFETY: the texts end in zero and outlive the call; no data goes with it.
    checked(unsafe { mount(kind, target.as_ptr(), kind, 0, std::ptr::null()) })
}

/// Closes this process to others of the same user: its environment, memory and open files.
pub(crate) fn shut_the_door() -> io::Result<()> {
    const PR_SET_DUMPABLE: c_int = 4;
    // SAFETY: takes a number, touches no memory of ours.
    checked(unsafe {
        prctl(
            PR_SET_DUMPABLE,
            0 as c_ulong,
            0 as c_ulong,
            0 as c_ulong,
            0 as c_ulong,
        )
    })
}

/// Makes this process the parent of every descendant whose own parent ends.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    const PR_SET_CHILD_SUBREAPER: c_int = 36;
    // SAFETY: takes a number, touches no memory of ours.
    checked(unsafe {
        prctl(
            PR_SET_CHILD_SUBREAPER,
            1 as c_ulong,
            0 as c_ulong,
            0 as c_ulong,
            0 as c_ulong,
        )
    })
}

/// Starts a session, in which this process is alone.
pub(crate) fn new_session() -> io::Result<()> {
    // SAFETY: touches no memory.
    checked(unsafe { setsid() })
}

/// Puts nothing (`/dev/null`) in the place of these open files.
pub(crate) fn silence<const N: usize>(fds: [BorrowedFd<'_>; N]) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for fd in fds {
        // SAFETY: both are open; whoever owns the second one keeps owning a file that is open.
        checked(unsafe { dup2(null.as_raw_fd(), fd.as_raw_fd()) })?;
    }
    Ok(())
}

/// Keeps what whoever started this process had open from the programs that are started here.
pub(crate) fn keep_open_files_back() -> io::Result<()> {
    const F_SETFD: c_int = 2;
    const FD_CLOEXEC: c_int = 1;
    for entry in fs::read_dir("/proc/self/fd")? {
        let fd = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(fd) = fd.filter(|fd: &c_int| *fd > 2) {
            // SAFETY: takes numbers; one that is no open file is refused.
            checked(unsafe { fcntl(fd, F_SETFD, FD_CLOEXEC) })?;
        }
    }
    Ok(())
}

/// Makes writing return at once when there is no room.
pub(crate) fn never_wait_for(fd: impl AsFd) -> io::Result<()> {
    const F_GETFL: c_int = 3;
    const F_SETFL: c_int = 4;
    const O_NONBLOCK: c_int = 0o4000;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the file is open and these two commands take and return numbers.
    let flags = unsafe { fcntl(fd, F_GETFL) };
    checked(flags)?;
    // SAFETY: as above.
    checked(unsafe { fcntl(fd, F_SETFL, flags | O_NONBLOCK) })
}

/// Which of the two processes this is now.
pub(crate) enum Forked {
    Parent { child: i32 },
    Child,
}

/// Makes a second process that goes on from here. Only for a process with a single thread.
pub(crate) fn split() -> io::Result<Forked> {
    // SAFETY: there are no other threads that could hold a lock in the child.
    match unsafe { fork() } {
        0 => Ok(Forked::Child),
        child => checked(child).map(|()| Forked::Parent { child }),
    }
}

/// Signals that are sent here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Kill = 9,
    Term = 15,
    Continue = 18,
}

/// Sends a signal to a process. One that is gone, or may not be sent to, is passed over.
pub(crate) fn send(signal: Signal, process: i32) {
    // SAFETY: touches no memory.
    unsafe { kill(process, signal as c_int) };
}

const SIGCHLD: c_int = 17;

/// Lets ended children vanish by themselves.
pub(crate) fn forget_children() {
    const SIG_IGN: usize = 1;
    // SAFETY: no handler of ours is installed.
    unsafe { signal(SIGCHLD, SIG_IGN) };
}

static CHILD_ENDED: AtomicI32 = AtomicI32::new(-1);

extern "C" fn note_child(_signal: c_int) {
    // SAFETY: `write` may be called in a handler, and the byte lives on. A full pipe says the same as another byte.
    unsafe {
        write(
            CHILD_ENDED.load(Ordering::Relaxed),
            (&raw const b"."[0]).cast(),
            1,
        )
    };
}

/// A pipe that can be read from whenever a child has ended.
pub(crate) fn watch_children() -> io::Result<PipeReader> {
    let (reader, writer): (PipeReader, PipeWriter) = io::pipe()?;
    never_wait_for(&writer)?;
    CHILD_ENDED.store(writer.into_raw_fd(), Ordering::Relaxed);
    // SAFETY: the handler does nothing but what handlers may do.
    unsafe { signal(SIGCHLD, note_child as extern "C" fn(c_int) as usize) };
    Ok(reader)
}

/// What [`reap`] finds.
pub(crate) enum Reaped {
    /// This child has ended, with this wait status.
    Ended {
        child: i32,
        status: i32,
    },
    /// All children run.
    NothingYet,
    NoChildren,
}

/// Takes note of one child that has ended.
pub(crate) fn reap() -> Reaped {
    const WNOHANG: c_int = 1;
    let mut status = 0;
    // SAFETY: the status is ours to write to.
    match unsafe { waitpid(-1, &raw mut status, WNOHANG) } {
        0 => Reaped::NothingYet,
        child if child > 0 => Reaped::Ended { child, status },
        _ => Reaped::NoChildren,
    }
}

/// One open file that [`wait`] watches; laid out as the system's `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    fd: c_int,
    wanted: c_short,
    seen: c_short,
}

impl Watched {
    /// Until there is something to read, or nothing will ever come.
    pub(crate) fn for_reading(fd: impl AsFd) -> Self {
        Self::of(fd, 1)
    }

    /// Until there is room to write, or nobody will ever read.
    pub(crate) fn for_writing(fd: impl AsFd) -> Self {
        Self::of(fd, 4)
    }

    fn of(fd: impl AsFd, wanted: c_short) -> Self {
        Self {
            fd: fd.as_fd().as_raw_fd(),
            wanted,
            seen: 0,
        }
    }

    pub(crate) fn is_ready(self) -> bool {
        self.seen != 0
    }
}

/// Waits until one of them is ready, a child has ended or the time is over. None is ready when a signal came first.
pub(crate) fn wait(watched: &mut [Watched], longest: Option<Duration>) -> io::Result<()> {
    // Rounded up, so as not to come back just before the time.
    let milliseconds = longest.map_or(-1, |longest| {
        i32::try_from(longest.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
    });
    // SAFETY: pointer and length are those of one slice, laid out as `poll` expects.
    let found = unsafe { poll(watched.as_mut_ptr(), watched.len() as c_ulong, milliseconds) };
    match checked(found) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            for one in watched {
                one.seen = 0;
            }
            Ok(())
        }
        waited => waited,
    }
}

/// The system's own error when a call returned one.
fn checked(returned: c_int) -> io::Result<()> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
