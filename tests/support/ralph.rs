//! The real binary in a place of its own: a repository, a data directory, and none of the host's settings.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::json_shape;

/// How long a test waits for anything. Far longer than it takes, so that no test fails on a slow host.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// The `ralph` binary that cargo built for the running test: it lies above the directory of the test binaries.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile_dir = test.ancestors().nth(2).unwrap();
    profile_dir.join("ralph")
}

/// The directories of programs, without those that a version manager rewrites whenever it likes: a run pauses, as it must, if a
/// directory of programs changes while it works.
pub fn steady_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_steady = |dir: &PathBuf| !dir.ends_with("shims");
    std::env::join_paths(std::env::split_paths(&path).filter(is_steady)).unwrap()
}

/// A task with two boxes: `a.txt` and `b.txt` say hello.
pub const TASK: &str = "\
---
task_id: t1
test_command: sh test.sh
max_iterations: 6
max_wall_time_minutes: 5
max_tokens_total: 1000000
---
# Say hello

### Milestone M1 Both files

- [ ] M1.1 a.txt says hello
  - verify: `grep -q hello a.txt`
- [ ] M1.2 b.txt says hello
  - verify: `grep -q hello b.txt`
";

const CONFIG: &str = "\
[agent]
name = \"actions\"
[sandbox]
type = \"local\"
[sandbox.network]
policy = \"allow-all\"
";

/// A repository with a task in it, and a data directory for ralph; both vanish when it is dropped.
pub struct Place {
    dir: TempDir,
}

impl Place {
    /// A repository with one commit on `main`; task and configuration lie beside it, untracked.
    pub fn new() -> Self {
        let place = Self::bare();
        place.git(&["init", "--quiet", "--initial-branch=main"]);
        place.write("README.md", "A project\n");
        place.write("test.sh", "test ! -e broken\n");
        place.commit("Begin");
        place.write("ralph_task.md", TASK);
        place.write("ralph.toml", CONFIG);
        place
    }

    /// An empty directory in place of the repository.
    pub fn bare() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["repo", "ralph", "home"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    /// Everything of this place.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The user's repository.
    pub fn repo(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    /// `RALPH_HOME`.
    pub fn home(&self) -> PathBuf {
        self.dir.path().join("ralph")
    }

    /// Writes a file of the user's.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.repo().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Replaces the goal of the task that `ralph init` wrote, and nothing else: two files say hello.
    pub fn set_goal(&self) {
        let mut text = fs::read_to_string(self.repo().join("ralph_task.md")).unwrap();
        for (example, own) in [
            ("What is to be done, in one line", "Say hello"),
            (
                "Say why you want it, what exists already, and what must not change.",
                "Two files say hello.",
            ),
            ("The greeting names the user", "a.txt says hello"),
            ("The greeting ends with a line break", "b.txt says hello"),
            ("grep -q 'Hello, ' greeting.txt", "grep -q hello a.txt"),
            (
                "test \"$(tail -c 1 greeting.txt | wc -l)\" -eq 1",
                "grep -q hello b.txt",
            ),
        ] {
            assert!(text.contains(example), "{example}: {text}");
            text = text.replace(example, own);
        }
        self.write("ralph_task.md", &text);
    }

    /// Commits everything of the user's.
    pub fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    /// What git prints in the user's repository.
    pub fn git(&self, args: &[&str]) -> String {
        let ended = self.git_in(&self.repo(), args);
        assert_eq!(ended.code, Some(0), "git {args:?}: {ended:?}");
        ended.stdout
    }

    /// Runs git in any directory.
    pub fn git_in(&self, dir: &Path, args: &[&str]) -> Ended {
        let mut command = self.command("git", dir);
        for (name, value) in [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "user"),
            ("GIT_AUTHOR_EMAIL", "user@localhost"),
            ("GIT_COMMITTER_NAME", "user"),
            ("GIT_COMMITTER_EMAIL", "user@localhost"),
        ] {
            command.env(name, value);
        }
        finish(command.args(args))
    }

    /// `ralph` with these arguments, in the user's repository, with nothing in its environment but what it needs.
    pub fn ralph(&self, args: &[&str]) -> Command {
        let mut command = self.command(&program(), &self.repo());
        command.env("RALPH_HOME", self.home()).args(args);
        command
    }

    /// A line of shell in the user's repository, with the environment of [`Place::ralph`].
    pub fn shell(&self, line: &str) -> Command {
        let mut command = self.command("sh", &self.repo());
        command.env("RALPH_HOME", self.home()).args(["-ec", line]);
        command
    }

    /// A `PATH` with a directory of its own first, in which a program of this name is this shell script.
    pub fn path_with(&self, program: &str, script: &str) -> OsString {
        let dir = self.path().join("programs");
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join(program);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let steady = steady_path();
        std::env::join_paths(std::iter::once(dir).chain(std::env::split_paths(&steady))).unwrap()
    }

    /// A `PATH` with git and a shell, and no other program.
    pub fn bare_path(&self) -> OsString {
        let dir = self.path().join("few-programs");
        fs::create_dir_all(&dir).unwrap();
        for program in ["git", "sh"] {
            let file = which::which(program).unwrap();
            let _ = std::os::unix::fs::symlink(file, dir.join(program));
        }
        dir.into()
    }

    /// The program at a terminal, which the program `script` makes, with a person who types this. Everything is on stdout.
    pub fn on_terminal(&self, script: &Path, typed: &str, args: &[&str]) -> Command {
        let program = self.ralph(&[]).get_program().to_str().unwrap().to_owned();
        let line = [&[program.as_str()], args].concat().join(" ");
        self.shell(&format!(
            "printf '{typed}' | {} -qec '{line}' /dev/null",
            script.display()
        ))
    }

    /// Runs `ralph` with these arguments.
    pub fn run(&self, args: &[&str]) -> Ended {
        finish(&mut self.ralph(args))
    }

    /// Runs the task with a scripted model.
    pub fn run_script(&self, script: &Value) -> Ended {
        finish(&mut self.scripted(script, &[]))
    }

    /// `ralph run` with a scripted model.
    pub fn scripted(&self, script: &Value, args: &[&str]) -> Command {
        let file = self.path().join("script.json");
        fs::write(&file, script.to_string()).unwrap();
        let mut command = self.ralph(&["run", "--script"]);
        command.arg(file).args(args);
        command
    }

    /// The directories of the runs, in no order.
    pub fn runs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.home().join("runs")).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        // A process that is killed while it creates a run leaves a directory that is none.
        let is_run = |path: &PathBuf| {
            !path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        };
        paths.filter(is_run).collect()
    }

    /// The directory of the only run.
    pub fn run_dir(&self) -> PathBuf {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.into_iter().next().unwrap()
    }

    /// The id of the only run.
    pub fn run_id(&self) -> String {
        self.run_dir().file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// A file of the only run, below its copy of `.ralph/`.
    pub fn noted(&self, name: &str) -> String {
        let path = self.run_dir().join("ralph").join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// What `ralph status --json` says of the only run.
    pub fn status(&self) -> Value {
        let ended = self.run(&["status", "--json"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let rows: Value = serde_json::from_str(&ended.stdout).unwrap();
        rows[0].clone()
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>, dir: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(dir).env_clear();
        command.env("PATH", steady_path());
        command.env("HOME", self.dir.path().join("home"));
        command.stdin(Stdio::null());
        command
    }
}

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn new(status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: status.code(),
            stdout: text(stdout),
            stderr: text(stderr),
        }
    }

    /// The values that stdout holds, one a line.
    pub fn json_lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }

    /// Fails unless it ended with this code and said all of this on stderr.
    pub fn expect(&self, code: i32, said: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        for text in said {
            assert!(self.stderr.contains(text), "{text:?} is not in {self:?}");
        }
        self
    }

    /// Fails unless it was refused as a mistake of the caller's, with all of this said and nothing on stdout.
    pub fn expect_refused(&self, said: &[&str]) -> &Self {
        self.expect(2, said);
        assert!(
            self.stderr.lines().any(|line| line.starts_with("ralph: ")),
            "{self:?}"
        );
        assert_eq!(self.stdout, "", "{self:?}");
        self
    }
}

/// Runs a command to its end. What the program prints with `--json` must match its schema.
pub fn finish(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let ended = Ended::new(output.status, &output.stdout, &output.stderr);
    let args: Vec<&str> = command.get_args().filter_map(|arg| arg.to_str()).collect();
    // A log may have lines that another version of ralph wrote.
    if command.get_program() == program() && !args.contains(&"logs") {
        json_shape::check(&args, &ended);
    }
    ended
}

/// A process in the background; killed when dropped.
pub struct Live {
    child: Child,
    streams: Option<[JoinHandle<Vec<u8>>; 2]>,
}

impl Live {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self {
            child,
            streams: Some([read_all(stdout), read_all(stderr)]),
        }
    }

    /// Starts it with its standard output going elsewhere.
    pub fn start_with(command: &mut Command, stdout: impl Into<Stdio>) -> Self {
        let mut child = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        Self {
            child,
            streams: Some([read_all(std::io::empty()), read_all(stderr)]),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        eventually("the process ends", || !self.is_running());
        let status = self.child.wait().unwrap();
        let streams = self.streams.take().unwrap();
        let [stdout, stderr] = streams.map(|stream| stream.join().unwrap());
        Ended::new(status, &stdout, &stderr)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// The processes whose environment names this directory, for people: their id and command line.
pub fn processes_of(dir: &Path) -> Vec<String> {
    let describe = |id: String| {
        let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        format!("{id}: {}", line.replace('\0', " "))
    };
    process_ids_of(dir).into_iter().map(describe).collect()
}

/// Their ids.
pub fn process_ids_of(dir: &Path) -> Vec<String> {
    let place = dir.to_str().unwrap().as_bytes();
    let names = fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let ids = names.map(|name| name.to_string_lossy().into_owned());
    let lives = |id: &String| {
        let environ = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environ.windows(place.len()).any(|window| window == place)
    };
    ids.filter(lives).collect()
}

/// Waits until something holds; fails when it does not for too long.
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    assert!(waited_for(holds), "waited in vain: {what}");
}

/// Waits until something holds; whether it did before too long.
pub fn waited_for(mut holds: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !holds() {
        if started.elapsed() > TIMEOUT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Lets a command run where another would: in its directory, with its environment and nothing else.
pub fn in_place_of(command: &mut Command, other: &Command) {
    if let Some(dir) = other.get_current_dir() {
        command.current_dir(dir);
    }
    let env = other.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command.env_clear().envs(env).stdin(Stdio::null());
}

/// Writes the user's own configuration file.
pub fn user_file(place: &Place, text: &str) {
    let dir = place.path().join("home/.config/ralph");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("config.toml"), text).unwrap();
}

/// A run whose first iteration waits until a test lets it go on.
pub struct Held {
    /// Its process.
    pub live: Live,
    go: PathBuf,
}

impl Held {
    /// Starts it, and returns when its first iteration is at work.
    pub fn start(place: &Place) -> Self {
        let (started, go) = (place.path().join("started"), place.path().join("go"));
        let hold = format!(
            "touch {}; until [ -e {} ]; do sleep 0.02; done",
            started.display(),
            go.display()
        );
        let script = script([doing([write("draft.txt", "draft\n"), run(&hold)]), whole_task()]);
        let live = Live::start(&mut place.scripted(&script, &[]));
        eventually("the first iteration is at work", || started.exists());
        Self { live, go }
    }

    /// Lets the first iteration end.
    pub fn let_go(&self) {
        fs::write(&self.go, "").unwrap();
    }
}

/// A script of these iterations, each with one call.
pub fn script(answers: impl IntoIterator<Item = Value>) -> Value {
    let iterations: Vec<Value> = answers.into_iter().map(|answer| json!([call(&answer)])).collect();
    json!({ "iterations": iterations })
}

/// A call that costs nothing much.
pub fn call(answer: &Value) -> Value {
    json!({"answer": answer, "tokens": {"input": 100, "output": 10}, "cost_usd": 0.001})
}

/// An answer that does this and claims nothing.
pub fn doing(actions: impl IntoIterator<Item = Value>) -> Value {
    json!({"summary": "some work", "actions": actions.into_iter().collect::<Vec<_>>()})
}

/// An answer that does this and says that the task is done.
pub fn ending(actions: impl IntoIterator<Item = Value>) -> Value {
    let stop = json!({"type": "stop_success", "reason": "it is done"});
    doing(actions.into_iter().chain([stop]))
}

/// The action that runs a command.
pub fn run(command: &str) -> Value {
    json!({"type": "run", "command": command})
}

/// The action that writes a file.
pub fn write(path: &str, content: &str) -> Value {
    json!({"type": "write", "path": path, "content": content})
}

/// The action that commits everything.
pub fn commit(message: &str) -> Value {
    json!({"type": "commit", "message": message})
}

/// An answer that does the whole task.
pub fn whole_task() -> Value {
    ending([
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
    ])
}
