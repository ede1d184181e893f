//! The one place that starts processes on the host, and ends them with everything they left behind.

mod group;
mod input;
mod mark;
mod open;
mod pump;
mod running;

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

pub use open::Printed;
pub use running::Running;

use self::mark::Mark;
use super::{Command, Exit, OutputSink, Status};

/// How long a command that has ended may be kept waiting by a child that holds its streams, unless said otherwise.
const GRACE_DEFAULT: Duration = Duration::from_secs(2);

/// How often, and after what pause, a program file that is still open for writing is tried again.
const BUSY_RETRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Starts processes on the host. They see the variables given here, their command's own, and the mark by which they
/// are found again (`RALPH_MARK`); nothing else.
#[derive(Clone)]
pub struct Host {
    env: BTreeMap<String, String>,
    dir: Option<PathBuf>,
    grace: Duration,
    mark: Mark,
}

impl Host {
    /// A host whose commands start from exactly these variables (`PATH` and `HOME`, as a rule).
    #[must_use]
    pub fn new(env: BTreeMap<String, String>) -> Self {
        Self {
            env,
            dir: None,
            grace: GRACE_DEFAULT,
            mark: Mark::random(),
        }
    }

    /// Where commands without a `cwd` start; a relative `cwd` is relative to it. Without one, that is the directory
    /// this process is in.
    #[must_use]
    pub fn with_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// How long a command that has ended may be kept waiting by a child that holds its streams.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Gives its processes a name that outlives this value: [`Host::end_all`] of any host with the same name, in this
    /// process or a later one, ends them.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<OsString>) -> Self {
        self.mark = Mark::named(name);
        self
    }

    /// Runs a command to its end, in a process group of its own. Dropping the future ends the command.
    pub async fn run(&self, command: &Command, output: &mut dyn OutputSink) -> io::Result<Exit> {
        self.start(command)?.finish(output).await
    }

    /// Runs a command that speaks to the user itself: its input and its output are the terminal of this process.
    pub async fn run_on_terminal(&self, command: &Command) -> io::Result<Status> {
        #[expect(clippy::disallowed_methods, reason = "this is the one module that may")]
        let mut process = tokio::process::Command::new(self.locate(command, None)?);
        process
            .args(&command.args)
            .env_clear()
            .envs(&self.env)
            .envs(&command.env)
            .kill_on_drop(true);
        let ended = spawn(&mut process)?.wait().await?;
        let signal = || std::os::unix::process::ExitStatusExt::signal(&ended).unwrap_or_default();
        Ok(ended
            .code()
            .map_or_else(|| Status::Signal(signal()), Status::Code))
    }

    /// Starts a command in a process group of its own. Dropping what it returns ends the command.
    pub fn start<'a>(&self, command: &'a Command) -> io::Result<Running<'a>> {
        let (mut process, mark) = self.process(command)?;
        process.stdin(input::of(command)).stderr(Stdio::piped());
        // Before it is started: afterwards this thread may have to wait for its turn while the command runs.
        let started = Instant::now();
        Running::new(spawn(&mut process)?, command, mark, (started, self.grace))
    }

    /// Starts a command to speak with: what it prints, and what it reads. Its errors go nowhere, and none of its limits
    /// counts. Dropping the first of the two ends the command.
    pub fn open(&self, command: &Command) -> io::Result<(Printed, ChildStdin)> {
        let (mut process, mark) = self.process(command)?;
        process.stdin(Stdio::piped()).stderr(Stdio::null());
        open::streams(spawn(&mut process)?, mark)
    }

    /// The process of a command, yet to be started, and the mark that it carries.
    fn process(&self, command: &Command) -> io::Result<(tokio::process::Command, Mark)> {
        let dir = self.dir_of(command)?;
        let mark = self.mark.one_command();
        let (variable, value) = mark.variable();
        #[expect(clippy::disallowed_methods, reason = "this is the one module that may")]
        let mut process = tokio::process::Command::new(self.locate(command, dir.as_deref())?);
        process
            .arg0(&command.program)
            .args(&command.args)
            .env_clear()
            .envs(&self.env)
            .envs(&command.env)
            .env(variable, value)
            .process_group(0)
            .kill_on_drop(true)
            .stdout(Stdio::piped());
        if let Some(dir) = dir {
            process.current_dir(dir);
        }
        Ok((process, mark))
    }

    /// Whether there is such a program on its `PATH`.
    #[must_use]
    pub fn finds(&self, program: &str) -> bool {
        self.path_of(program).is_some()
    }

    /// The program of this name on its `PATH`.
    #[must_use]
    pub fn path_of(&self, program: &str) -> Option<PathBuf> {
        self.locate(&Command::new(program), None).ok()
    }

    /// Ends everything that hosts of this name started, also what left its process group or was left behind by an
    /// earlier ralph. What cleared its environment *and* lost its parent is out of reach.
    pub async fn end_all(&self) -> io::Result<()> {
        self.mark.end().await
    }

    /// Waits until everything that hosts of this name started has ended by itself, as what an earlier ralph began and
    /// did not live to see the end of. The error is [`io::ErrorKind::TimedOut`] when that takes longer than `patience`.
    pub async fn settled(&self, patience: Duration) -> io::Result<()> {
        self.mark.gone(patience).await
    }

    /// Where the command starts. Asked first, because a missing directory and a missing program look alike later.
    fn dir_of(&self, command: &Command) -> io::Result<Option<PathBuf>> {
        let dir = match (&self.dir, &command.cwd) {
            (Some(dir), Some(cwd)) => dir.join(cwd),
            (Some(dir), None) | (None, Some(dir)) => dir.clone(),
            (None, None) => return Ok(None),
        };
        if dir.is_dir() {
            Ok(Some(dir))
        } else {
            Err(not_found(format!("there is no directory `{}`", dir.display())))
        }
    }

    /// Finds the program on the command's own `PATH`. Left to the standard library, that search would need a `fork`
    /// of the whole process in place of the much cheaper `posix_spawn`.
    fn locate(&self, command: &Command, dir: Option<&Path>) -> io::Result<PathBuf> {
        if command.program.contains('/') {
            return Ok(PathBuf::from(&command.program));
        }
        let path = command.env.get("PATH").or_else(|| self.env.get("PATH"));
        which::which_in(&command.program, path, dir.unwrap_or(Path::new(".")))
            .map_err(|_| not_found(format!("no program `{}` on the PATH", command.program)))
    }
}

/// Names of variables only: their values may be confidential.
impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

/// Starts the process. A program file that was just written may be held open for a moment by a process that another
/// thread is starting; then it is tried again.
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

/// Every process of this user, a line each: its id and its environment, mixed with its arguments.
#[cfg(not(target_os = "linux"))]
fn process_table() -> io::Result<Vec<u8>> {
    #[expect(clippy::disallowed_methods, reason = "this is the one module that may")]
    let ps = std::process::Command::new("/bin/ps")
        .args(["-xwwE", "-o", "pid=,command="])
        .output()?;
    Ok(ps.stdout)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use super::super::{Discard, Status};
    use super::*;

    fn host() -> Host {
        Host::new(BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]))
    }

    #[tokio::test]
    async fn a_command_that_is_spoken_with_ends_with_the_conversation() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let command = Command::shell("read -r word; echo \"heard $word\"; sleep 30");
        let host = host();
        let (mut printed, mut input) = host.open(&command).unwrap();
        input.write_all(b"this\n").await.unwrap();
        let mut heard = [0; 11];
        printed.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"heard this\n");
        drop(printed);
        host.settled(Duration::from_secs(60)).await.unwrap();
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

    #[tokio::test]
    async fn a_host_ends_the_processes_of_its_name_and_no_others() {
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
                host().with_name("host-test-mine").end_all().await.unwrap();
            }
        );
        assert_eq!(ended.unwrap().status, Status::Signal(9));
        assert_eq!(finished.unwrap().status, Status::Code(0));
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test]
    async fn a_host_waits_for_the_processes_of_its_name_but_not_for_ever() {
        let host = host().with_name("host-test-settled");
        let sleep = Command::new("sleep").arg("3");
        let started = Instant::now();
        let running = host.start(&sleep).unwrap();
        let impatient = host.settled(Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(impatient.kind(), io::ErrorKind::TimedOut);
        let mut output = Discard;
        let (settled, exit) =
            tokio::join!(host.settled(Duration::from_secs(60)), running.finish(&mut output));
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
            assert_eq!(exit.status, Status::Code(5));
        };
        thread::scope(|scope| {
            for thread in 0..8 {
                let write_and_run = &write_and_run;
                scope.spawn(move || (0..40).for_each(|round| write_and_run(format!("{thread}-{round}"))));
            }
        });
    }
}
