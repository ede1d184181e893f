//! System calls that the standard library does not offer. This file and `sys_net.rs` contain all `unsafe` code of ralph.
//! The constants are the same on all architectures that Rust supports on Linux.

#[cfg(feature = "escapes")]
use std::ffi::{CStr, c_char};
use std::ffi::{c_int, c_long, c_short, c_ulong, c_void};
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
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
    fn poll(fds: *mut PollEntry, count: c_ulong, milliseconds: c_int) -> c_int;
    fn signal(signal: c_int, handler: usize) -> usize;
    fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize;
    fn getrlimit(resource: c_int, limit: *mut ResourceLimit) -> c_int;
    fn setrlimit(resource: c_int, limit: *const ResourceLimit) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    #[cfg(feature = "escapes")]
    fn unshare(flags: c_int) -> c_int;
    #[cfg(feature = "escapes")]
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
}

/// Asks for an `io_uring` without entries, which no kernel sets up.
pub(crate) fn io_uring_setup() -> io::Result<()> {
    /// The same on all architectures.
    const IO_URING_SETUP: c_long = 425;
    let (entries, parameters): (c_long, *const c_void) = (0, std::ptr::null());
    // SAFETY: the kernel fails before it would use the null pointer as memory of this process.
    let answer = unsafe { syscall(IO_URING_SETUP, entries, parameters) };
    checked(c_int::try_from(answer).unwrap_or(0))
}

/// Moves this process into a new namespace of this kind (`CLONE_NEW*`).
#[cfg(feature = "escapes")]
pub(crate) fn unshare_namespace(kind: c_int) -> io::Result<()> {
    // SAFETY: takes a number, does not touch our memory.
    checked(unsafe { unshare(kind) })
}

/// Mounts an empty file system.
#[cfg(feature = "escapes")]
pub(crate) fn mount_tmpfs(target: &CStr) -> io::Result<()> {
    let kind = c"tmpfs".as_ptr();
    // SAFETY: the strings end in zero and outlive the call; there is no data.
    checked(unsafe { mount(kind, target.as_ptr(), kind, 0, std::ptr::null()) })
}

/// Denies other processes of the same user access to this one: its environment, memory and open files.
pub(crate) fn deny_inspection() -> io::Result<()> {
    const PR_SET_DUMPABLE: c_int = 4;
    set_process_option(PR_SET_DUMPABLE, 0)
}

/// Makes this process the new parent of descendants whose own parent exits.
pub(crate) fn become_subreaper() -> io::Result<()> {
    const PR_SET_CHILD_SUBREAPER: c_int = 36;
    set_process_option(PR_SET_CHILD_SUBREAPER, 1)
}

fn set_process_option(option: c_int, value: c_ulong) -> io::Result<()> {
    const UNUSED: c_ulong = 0;
    // SAFETY: takes numbers, does not touch our memory.
    checked(unsafe { prctl(option, value, UNUSED, UNUSED, UNUSED) })
}

/// Puts this process into a new session and process group.
pub(crate) fn new_process_session() -> io::Result<()> {
    // SAFETY: touches no memory.
    checked(unsafe { setsid() })
}

/// Replaces these open files by `/dev/null`.
pub(crate) fn redirect_to_dev_null<const N: usize>(fds: [BorrowedFd<'_>; N]) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for fd in fds {
        // SAFETY: both are open; the owner of the second one still owns an open file.
        checked(unsafe { dup2(null.as_raw_fd(), fd.as_raw_fd()) })?;
    }
    Ok(())
}

/// Marks all inherited files beside the standard streams close-on-exec, so that commands do not inherit them.
pub(crate) fn close_inherited_files_on_exec() -> io::Result<()> {
    const F_SETFD: c_int = 2;
    const FD_CLOEXEC: c_int = 1;
    for entry in fs::read_dir("/proc/self/fd")? {
        let fd = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(fd) = fd.filter(|fd: &c_int| *fd > 2) {
            // SAFETY: takes numbers; a closed file descriptor is an error.
            checked(unsafe { fcntl(fd, F_SETFD, FD_CLOEXEC) })?;
        }
    }
    Ok(())
}

/// Makes reads and writes return at once instead of blocking.
pub(crate) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
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

/// Lets a pipe hold this many bytes, if the kernel allows it. Does nothing to other files.
pub(crate) fn enlarge_pipe(pipe: impl AsFd, bytes: c_int) {
    const F_SETPIPE_SZ: c_int = 1031;
    // SAFETY: the file is open and the command takes a number.
    unsafe { fcntl(pipe.as_fd().as_raw_fd(), F_SETPIPE_SZ, bytes) };
}

/// Which side of a fork this process is.
pub(crate) enum ForkSide {
    Parent { child: i32 },
    Child,
}

/// Forks this process, which must have a single thread.
pub(crate) fn fork_process() -> io::Result<ForkSide> {
    // SAFETY: no other thread can hold a lock in the child.
    match unsafe { fork() } {
        0 => Ok(ForkSide::Child),
        child => checked(child).map(|()| ForkSide::Parent { child }),
    }
}

/// The signals that the guest sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Kill = 9,
    Term = 15,
    Continue = 18,
}

/// Sends a signal to a process. Errors are ignored: the process may be gone.
pub(crate) fn send_signal(signal: Signal, process: i32) {
    // SAFETY: touches no memory.
    unsafe { kill(process, signal as c_int) };
}

/// Kills every process that this one can see, except for itself and the first one of its namespace.
pub(crate) fn kill_all_others() {
    const ALL: c_int = -1;
    // SAFETY: touches no memory. It fails if there is no other process.
    unsafe { kill(ALL, Signal::Kill as c_int) };
}

/// Has the layout of `struct rlimit` on 64-bit systems.
#[repr(C)]
struct ResourceLimit {
    current: c_ulong,
    maximum: c_ulong,
}

/// Raises the limit of open files as far as this process may.
pub(crate) fn raise_open_files_limit() -> io::Result<()> {
    const RLIMIT_NOFILE: c_int = 7;
    let mut limit = ResourceLimit {
        current: 0,
        maximum: 0,
    };
    // SAFETY: the limit is ours to write to, and outlives both calls.
    checked(unsafe { getrlimit(RLIMIT_NOFILE, &raw mut limit) })?;
    limit.current = limit.maximum;
    // SAFETY: as above.
    checked(unsafe { setrlimit(RLIMIT_NOFILE, &raw const limit) })
}

const SIGCHLD: c_int = 17;

/// Lets the kernel reap children that exit.
pub(crate) fn ignore_child_exits() {
    const SIG_IGN: usize = 1;
    // SAFETY: no handler of ours is installed.
    unsafe { signal(SIGCHLD, SIG_IGN) };
}

static CHILD_EXIT_PIPE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_child_exit(_signal: c_int) {
    // SAFETY: `write` is async-signal-safe, and the byte is static. It does not matter if the pipe is full.
    unsafe {
        write(
            CHILD_EXIT_PIPE.load(Ordering::Relaxed),
            (&raw const b"."[0]).cast(),
            1,
        )
    };
}

/// Returns a pipe that becomes readable when a child exits.
pub(crate) fn watch_child_exits() -> io::Result<PipeReader> {
    let (reader, writer): (PipeReader, PipeWriter) = io::pipe()?;
    set_nonblocking(&writer)?;
    CHILD_EXIT_PIPE.store(writer.into_raw_fd(), Ordering::Relaxed);
    // SAFETY: the handler calls async-signal-safe functions only.
    unsafe { signal(SIGCHLD, on_child_exit as extern "C" fn(c_int) as usize) };
    Ok(reader)
}

/// The result of [`reap`].
pub(crate) enum ReapedChild {
    Exited {
        child: i32,
        status: ExitStatus,
    },
    /// All children are running.
    NoneYet,
    NoChildren,
}

/// Reaps one child that has exited.
pub(crate) fn reap() -> ReapedChild {
    const WNOHANG: c_int = 1;
    let mut status = 0;
    // SAFETY: the status is ours to write to.
    match unsafe { waitpid(-1, &raw mut status, WNOHANG) } {
        0 => ReapedChild::NoneYet,
        child if child > 0 => ReapedChild::Exited {
            child,
            status: ExitStatus::from_raw(status),
        },
        _ => ReapedChild::NoChildren,
    }
}

/// An open file for [`poll_files`]; has the layout of `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollEntry {
    fd: c_int,
    events: c_short,
    revents: c_short,
}

impl PollEntry {
    /// Ready when there is something to read, or the other end is closed.
    pub(crate) fn for_reading(fd: impl AsFd) -> Self {
        Self::new(fd, 1)
    }

    /// Ready when a write does not block, or the other end is closed.
    pub(crate) fn for_writing(fd: impl AsFd) -> Self {
        Self::new(fd, 4)
    }

    /// Ready in either case.
    pub(crate) fn for_both(fd: impl AsFd) -> Self {
        Self::new(fd, 1 | 4)
    }

    fn new(fd: impl AsFd, events: c_short) -> Self {
        Self {
            fd: fd.as_fd().as_raw_fd(),
            events,
            revents: 0,
        }
    }

    pub(crate) fn is_ready(self) -> bool {
        self.revents != 0
    }
}

/// Waits until an entry is ready, a child exits or the timeout has passed. No entry is ready if a signal came first.
pub(crate) fn poll_files(entries: &mut [PollEntry], timeout: Option<Duration>) -> io::Result<()> {
    // Rounded up, so as not to return just before the deadline.
    let milliseconds = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
    });
    // SAFETY: pointer and length are those of one slice, laid out as `poll` expects.
    let found = unsafe { poll(entries.as_mut_ptr(), entries.len() as c_ulong, milliseconds) };
    match checked(found) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            for entry in entries {
                entry.revents = 0;
            }
            Ok(())
        }
        polled => polled,
    }
}

/// The error number of a failed call, as an error.
pub(super) fn checked(returned: c_int) -> io::Result<()> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
