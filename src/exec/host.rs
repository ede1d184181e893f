//! The only module that starts processes on the host. It also ends them, with everything they left behind.

mod group;
mod mark;
mod piped;
mod process_info;
mod running;
mod stdin;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use tokio::process::ChildStdin;
use tokio::time::Instant;

pub use piped::CommandStdout;
pub(crate) use process_info::ProcessInfo;
pub use running::RunningCommand;
pub(crate) use stdin::send_input;

use self::mark::ProcessMark;
use super::{Command, Exit, ExitStatus, OutputSink};

/// Default of [`Host::with_grace`].
const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// How often, and after what pause, to retry a program file that is still open for writing.
const BUSY_RETRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Starts processes on the host. Their environment is the variables given here, those of the command, and `RALPH_MARK`,
/// by which [`Host::kill_all`] finds them; nothing else.
#[derive(Clone)]
pub struct Host {
    env: BTreeMap<String, String>,
    dir: Option<PathBuf>,
    grace: Duration,
    mark: ProcessMark,
}

impl Host {
    /// Creates a host with exactly these environment variables, usually `PATH` and `HOME`.
    #[must_use]
    pub fn new(env: BTreeMap<String, String>) -> Self {
        Self {
            env,
            dir: None,
            grace: DEFAULT_GRACE,
            mark: ProcessMark::random(),
        }
    }

    /// Sets the directory of commands without a `cwd`, and the base of a relative `cwd`. The default is the working
    /// directory of this process.
    #[must_use]
    pub fn with_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets how long to wait for the streams of a command that has ended while a child process still holds them.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Names the processes of this host. [`Host::kill_all`] of any host with the same name finds them, in this process or
    /// a later one.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<OsString>) -> Self {
        self.mark = ProcessMark::named(name);
        self
    }

    /// Runs a command in its own process group until it ends. Dropping the future ends the command.
    pub async fn run(&self, command: &Command, output: &mut dyn OutputSink) -> io::Result<Exit> {
        self.start(command)?.finish(output).await
    }

    /// Runs an interactive command: its input, output and working directory are those of this process. Its limits are
    /// ignored, and [`Host::kill_all`] does not find it.
    pub async fn run_on_terminal(&self, command: &Command) -> io::Result<ExitStatus> {
        let mut process = self.process(command, None)?;
        Ok(spawn(&mut process)?.wait().await?.into())
    }

    /// Starts a command in its own process group. Dropping the result ends the command.
    pub fn start<'a>(&self, command: &'a Command) -> io::Result<RunningCommand<'a>> {
        let (mut process, mark) = self.marked_process(command)?;
        process.stdin(stdin::stdin(command)).stderr(Stdio::piped());
        // Before the start, because this thread may be descheduled after it while the command already runs.
        let started = Instant::now();
        RunningCommand::new(spawn(&mut process)?, command, mark, started, self.grace)
    }

    /// Starts a command and returns its standard output and input. Its standard error is discarded and its limits are
    /// ignored. Dropping the [`CommandStdout`] ends the command.
    pub fn open_piped(&self, command: &Command) -> io::Result<(CommandStdout, ChildStdin)> {
        let (mut process, mark) = self.marked_process(command)?;
        process.stdin(Stdio::piped()).stderr(Stdio::null());
        piped::take_streams(spawn(&mut process)?, mark)
    }

    /// Prepares the process of a command in its own group, with its output in a pipe, and the mark in its environment.
    fn marked_process(&self, command: &Command) -> io::Result<(tokio::process::Command, ProcessMark)> {
        let dir = self.dir_of(command)?;
        let mark = self.mark.for_command();
        let mut process = self.process(command, dir.as_deref())?;
        process
            .env(mark::VARIABLE, &mark.0)
            .process_group(0)
            .stdout(Stdio::piped());
        if let Some(dir) = dir {
            process.current_dir(dir);
        }
        Ok((process, mark))
    }

    fn process(&self, command: &Command, dir: Option<&Path>) -> io::Result<tokio::process::Command> {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the module that starts processes"
        )]
        let mut process = tokio::process::Command::new(self.locate(command, dir)?);
        process
            .arg0(&command.program)
            .args(&command.args)
            .env_clear()
            .envs(&self.env)
            .envs(&command.env)
            .kill_on_drop(true);
        Ok(process)
    }

    /// Whether the program is on the `PATH`.
    #[must_use]
    pub fn has_program(&self, program: &str) -> bool {
        self.find_program(program).is_some()
    }

    /// Finds a program on the `PATH`.
    #[must_use]
    pub fn find_program(&self, program: &str) -> Option<PathBuf> {
        self.locate(&Command::new(program), None).ok()
    }

    /// Kills every process that a host of this name started, also those that left their process group and those of an
    /// earlier ralph process. A process that cleared its environment *and* lost its parent is not found.
    pub async fn kill_all(&self) -> io::Result<()> {
        self.mark.kill_all().await
    }

    /// Waits until every process that a host of this name started has ended, for example those of an earlier ralph
    /// process that was killed. Returns [`io::ErrorKind::TimedOut`] after `timeout`.
    pub async fn wait_for_all(&self, timeout: Duration) -> io::Result<()> {
        self.mark.wait_for_all(timeout).await
    }

    /// The working directory. Checked first, because the operating system reports a missing directory and a missing
    /// program alike.
    fn dir_of(&self, command: &Command) -> io::Result<Option<PathBuf>> {
        let dir = match (&self.dir, &command.cwd) {
            (Some(dir), _) => command.dir_in(dir),
            (None, Some(dir)) => dir.clone(),
            (None, None) => return Ok(None),
        };
        if dir.is_dir() {
            Ok(Some(dir))
        } else {
            Err(not_found(format!("no directory `{}`", dir.display())))
        }
    }

    /// Finds the program on the command's own `PATH`. If the standard library searched for it, it would `fork` the whole
    /// process instead of using the much cheaper `posix_spawn`.
    fn locate(&self, command: &Command, dir: Option<&Path>) -> io::Result<PathBuf> {
        if command.program.contains('/') {
            return Ok(PathBuf::from(&command.program));
        }
        let path = command.env.get("PATH").or_else(|| self.env.get("PATH"));
        which::which_in(&command.program, path, dir.unwrap_or(Path::new(".")))
            .map_err(|_| not_found(format!("no program `{}` on the PATH", command.program)))
    }
}

/// Shows the names of variables only: their values may be confidential.
impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

/// Starts the process. Retries while the program file is busy: a process that another thread is starting may hold a
/// just-written file open for a moment.
fn spawn(process: &mut tokio::process::Command) -> io::Result<tokio::process::Child> {
    for _ in 0..BUSY_RETRIES {
        match process.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => thread::sleep(BUSY_PAUSE),
            spawned => return spawned,
        }
    }
    process.spawn()
}

fn not_found(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, message)
}

/// Starts `ps` without the environment of this process, in the locale and time zone that its output is parsed in.
#[cfg(any(test, not(target_os = "linux")))]
fn ps_command(args: &[&str]) -> std::process::Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the module that starts processes"
    )]
    let mut ps = std::process::Command::new("/bin/ps");
    ps.args(args).env_clear().env("LC_ALL", "C").env("TZ", "UTC");
    ps
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::tests::search_path;
    use super::super::{Discard, ExitStatus};
    use super::*;

    fn host() -> Host {
        Host::new(BTreeMap::from([("PATH".to_owned(), search_path())]))
    }

    #[tokio::test]
    async fn a_piped_command_ends_when_its_stdout_is_dropped() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let command = Command::shell("read -r word; echo \"got $word\"; sleep 30");
        let host = host();
        let (mut stdout, mut stdin) = host.open_piped(&command).unwrap();
        stdin.write_all(b"this\n").await.unwrap();
        let mut line = [0; 9];
        stdout.read_exact(&mut line).await.unwrap();
        assert_eq!(&line, b"got this\n");
        drop(stdout);
        host.wait_for_all(Duration::from_secs(60)).await.unwrap();
    }

    #[tokio::test]
    async fn a_command_sees_what_it_was_given_and_its_mark() {
        let exit = host()
            .run(&Command::new("env").env("OWN", "1"), &mut Discard)
            .await
            .unwrap();
        let text = exit.stdout.text();
        let mut names: Vec<&str> = text.lines().filter_map(|line| line.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(names, ["OWN", "PATH", "RALPH_MARK"]);
    }

    #[test]
    fn debug_shows_no_values() {
        let host = Host::new(BTreeMap::from([("TOKEN".to_owned(), "s3cret".to_owned())]));
        assert!(!format!("{host:?}").contains("s3cret"));
    }

    #[tokio::test]
    async fn the_program_is_looked_up_on_the_path_of_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let command = Command::new("env").env("PATH", path);
        let error = host().run(&command, &mut Discard).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(error.to_string(), "no program `env` on the PATH");
    }

    #[tokio::test]
    async fn a_limit_beyond_all_time_is_no_limit() {
        let command = Command::new("true").timeout(Duration::MAX).idle(Duration::MAX);
        let host = host().with_grace(Duration::MAX);
        assert!(host.run(&command, &mut Discard).await.unwrap().success());
    }

    // macOS hides the mark of its own `sleep`.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_host_kills_the_processes_of_its_name_and_no_others() {
        let (mine, other) = (
            host().with_name("host-test-mine"),
            host().with_name("host-test-other"),
        );
        let sleep = Command::new("sleep").arg("20");
        let brief = Command::new("sleep").arg("0.5");
        let started = Instant::now();
        let mut outputs = (Discard, Discard);
        let (ended, finished, ()) = tokio::join!(
            mine.run(&sleep, &mut outputs.0),
            other.run(&brief, &mut outputs.1),
            async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                host().with_name("host-test-mine").kill_all().await.unwrap();
            }
        );
        assert_eq!(ended.unwrap().status, ExitStatus::Signal(9));
        assert_eq!(finished.unwrap().status, ExitStatus::Code(0));
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    // macOS hides the mark of its own `sleep`.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_host_waits_for_the_processes_of_its_name_but_not_for_ever() {
        let host = host().with_name("host-test-settled");
        let sleep = Command::new("sleep").arg("3");
        let started = Instant::now();
        let running = host.start(&sleep).unwrap();
        let timed_out = host.wait_for_all(Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(timed_out.kind(), io::ErrorKind::TimedOut);
        let mut output = Discard;
        let (settled, exit) = tokio::join!(
            host.wait_for_all(Duration::from_secs(60)),
            running.finish(&mut output)
        );
        settled.unwrap();
        assert!(exit.unwrap().success());
        assert!(started.elapsed() >= Duration::from_secs(3));
    }

    /// Each thread starts programs while others have theirs open for writing.
    #[test]
    fn a_program_just_written_can_be_run() {
        let dir = tempfile::tempdir().unwrap();
        let write_and_run = |name: String| {
            let program = dir.path().join(name);
            std::fs::write(&program, "#!/bin/sh\nexit 5\n").unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let command = Command::new(program.to_str().unwrap());
            let exit = runtime.block_on(host().run(&command, &mut Discard)).unwrap();
            assert_eq!(exit.status, ExitStatus::Code(5));
        };
        thread::scope(|scope| {
            for thread in 0..8 {
                let write_and_run = &write_and_run;
                scope.spawn(move || (0..40).for_each(|round| write_and_run(format!("{thread}-{round}"))));
            }
        });
    }
}
