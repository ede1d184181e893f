//! A user's repository, a `RALPH_HOME`, and ralph at work on them, in a directory of their own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ::support::ralph::{process_ids_of, processes_of, steady_path};
use tempfile::TempDir;

pub const SCRIPT: &str = include_str!("project/script.yaml");
pub const SLOW_SCRIPT: &str = include_str!("project/slow.yaml");

/// How long anything may take before it counts as hanging.
const TIMEOUT: Duration = Duration::from_secs(180);

pub struct World {
    dir: TempDir,
    repo: PathBuf,
}

impl World {
    /// A repository whose owner is in the middle of something, and a task for it.
    pub fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path().join("repo");
        Self::make(script, dir, repo)
    }

    /// The same with a repository below another directory.
    pub fn with_repo_in(script: &str, parent: &Path) -> Self {
        Self::make(script, tempfile::tempdir().unwrap(), parent.join("repo"))
    }

    fn make(script: &str, dir: TempDir, repo: PathBuf) -> Self {
        fs::create_dir_all(&repo).unwrap();
        fs::create_dir_all(dir.path().join("user")).unwrap();
        let world = Self { dir, repo };
        world.fill(script);
        world
    }

    fn fill(&self, script: &str) {
        let put = |name: &str, text: &str| fs::write(self.repo().join(name), text).unwrap();
        fs::write(self.path().join("script.yaml"), script).unwrap();
        put("convert.sh", include_str!("project/convert.sh"));
        put("test.sh", include_str!("project/test.sh"));
        put("README.md", "# Degrees\n\nA tiny converter.\n");
        self.git(&["init", "--quiet", "--initial-branch=main"]);
        self.git(&["config", "user.name", "a person"]);
        self.git(&["config", "user.email", "person@localhost"]);
        self.git(&["add", "."]);
        self.git(&["commit", "--quiet", "--message", "A converter with a mistake"]);
        self.git(&["branch", "other"]);
        put("staged.txt", "staged\n");
        self.git(&["add", "staged.txt"]);
        put("staged.txt", "staged, and changed since\n");
        put(
            "README.md",
            "# Degrees\n\nA tiny converter, as its owner is about to rewrite it.\n",
        );
        put("ralph_task.md", include_str!("project/ralph_task.md"));
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn repo(&self) -> &Path {
        &self.repo
    }

    pub fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// The run's directory, once there is one.
    pub fn run_dir(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(self.home().join("runs")).ok()?;
        let is_run = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| !name.to_string_lossy().starts_with('.'))
        };
        let mut runs: Vec<PathBuf> = entries
            .map(|entry| entry.unwrap().path())
            .filter(is_run)
            .collect();
        assert!(runs.len() <= 1, "more than one run: {runs:?}");
        runs.pop()
    }

    /// The run's id.
    pub fn run_id(&self) -> String {
        let dir = self.run_dir().expect("there is a run");
        dir.file_name().unwrap().to_string_lossy().into_owned()
    }

    /// A file of the run's directory.
    pub fn run_file(&self, name: &str) -> PathBuf {
        self.run_dir().expect("there is a run").join(name)
    }

    /// Prepares a command in the user's repository that sees no environment but its own.
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.repo())
            .env_clear()
            .env("PATH", steady_path())
            .env("HOME", self.path().join("user"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("RALPH_HOME", self.home())
            .stdin(Stdio::null());
        command
    }

    pub fn git(&self, args: &[&str]) -> String {
        let output = self.command("git", args).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", stderr_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs ralph to its end.
    pub fn ralph(&self, args: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_ralph"), args).output().unwrap()
    }

    /// Runs `ralph resume` to its end.
    pub fn resume(&self) -> Output {
        self.ralph(&["resume", &self.run_id()])
    }

    /// Starts the run, or goes on with it once there is one.
    pub fn go_on(&self) -> Ralph {
        if self.run_dir().is_some() {
            let id = self.run_id();
            return self.start(&["resume", "--json", &id]);
        }
        let args = self.run_args();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.start(&args)
    }

    /// The arguments that start the run.
    pub fn run_args(&self) -> Vec<String> {
        let script = self.path().join("script.yaml");
        let args = [
            "run",
            "--json",
            "--type",
            "local",
            "--agent",
            "actions",
            "--set",
            "sandbox.network.policy=allow-all",
            "--set",
            "doctor.every_iterations=2",
            "--script",
            script.to_str().unwrap(),
        ];
        args.map(str::to_owned).into()
    }

    /// Goes on in another repository.
    pub fn move_to(&mut self, repo: PathBuf) {
        self.repo = repo;
    }

    fn start(&self, args: &[&str]) -> Ralph {
        self.start_command(&mut self.command(env!("CARGO_BIN_EXE_ralph"), args))
    }

    /// Starts ralph by this command, with `--json` in it.
    pub fn start_command(&self, command: &mut Command) -> Ralph {
        let stderr = self.path().join("stderr.txt");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        let (send, events) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let lines = stdout.lines().map_while(Result::ok);
            let names = lines.filter_map(|line| {
                let event: serde_json::Value = serde_json::from_str(&line).ok()?;
                Some(event["event"].as_str()?.to_owned())
            });
            names.for_each(|name| drop(send.send(name)));
        });
        Ralph {
            child,
            events,
            stderr,
        }
    }

    /// A run that was killed as soon as this event had come so many times.
    pub fn killed_at(script: &str, event: &str, times: u32) -> Self {
        let world = Self::new(script);
        let mut ralph = world.go_on();
        assert!(ralph.wait_for(event, times), "{}", ralph.stderr());
        ralph.kill();
        world
    }

    /// The processes that were started for this world and still live, for people.
    pub fn processes(&self) -> Vec<String> {
        processes_of(self.path())
    }
}

impl Drop for World {
    /// Some tests end with a run that was killed and never taken up.
    fn drop(&mut self) {
        for id in process_ids_of(self.path()) {
            let _ = Command::new("kill")
                .args(["-s", "KILL", &id])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// ralph at work.
pub struct Ralph {
    child: Child,
    events: Receiver<String>,
    stderr: PathBuf,
}

impl Ralph {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits until an event has come so many times; `false` when ralph ended before.
    pub fn wait_for(&mut self, event: &str, times: u32) -> bool {
        let mut left = times;
        while left > 0 {
            match self.events.recv_timeout(TIMEOUT) {
                Ok(name) => left -= u32::from(name == event),
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => panic!("hangs before {event}: {}", self.stderr()),
            }
        }
        true
    }

    /// `kill -9`. Returns how ralph ended, which may have been before.
    pub fn kill(&mut self) -> ExitStatus {
        self.child.kill().unwrap();
        self.child.wait().unwrap()
    }

    pub fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end.
    pub fn finish(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < TIMEOUT, "hangs: {}", self.stderr());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Ralph {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process wrote to its standard error.
pub fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
