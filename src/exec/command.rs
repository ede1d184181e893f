//! A program with its arguments, environment and limits.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default of [`Command::keep`], in bytes.
const KEEP_DEFAULT: usize = 64 * 1024;

/// What to run. A sandbox or the [`Host`](super::Host) runs it.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    /// The program. Looked up on the `PATH` unless it contains a slash.
    pub program: String,
    /// Its arguments. Never put a secret here: every user of the host can read them.
    pub args: Vec<String>,
    /// Environment variables, added to those of the sandbox or host.
    pub env: BTreeMap<String, String>,
    /// The working directory. `None` means the sandbox's work directory.
    pub cwd: Option<PathBuf>,
    /// Standard input. `None` is an empty stream.
    pub stdin: Option<Vec<u8>>,
    /// Wall-clock limit. When it is reached, the whole process group is ended.
    pub timeout: Option<Duration>,
    /// Limit on the time without any output. When it is reached, the whole process group is ended.
    pub idle: Option<Duration>,
    /// How many bytes of each output stream the [`Exit`](super::Exit) keeps.
    pub keep: usize,
}

impl Command {
    /// Creates a command without arguments.
    pub fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            stdin: None,
            timeout: None,
            idle: None,
            keep: KEEP_DEFAULT,
        }
    }

    /// Creates a command that runs `line` with `sh -c`. Only for shell lines that a user wrote (`test_command`, `verify:`).
    pub fn shell(line: impl Into<String>) -> Self {
        Self::new("sh").args(["-c".to_owned(), line.into()])
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets environment variables.
    #[must_use]
    pub fn envs(mut self, variables: &BTreeMap<String, String>) -> Self {
        self.env.extend(variables.clone());
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    /// The directory it starts in, if `root` is that of commands without a `cwd` and the base of a relative one.
    pub(crate) fn dir_in(&self, root: &Path) -> PathBuf {
        self.cwd
            .as_ref()
            .map_or_else(|| root.to_owned(), |cwd| root.join(cwd))
    }

    /// Sets the standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Sets the wall-clock limit.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Sets the limit on the time without output.
    #[must_use]
    pub fn idle(mut self, limit: Duration) -> Self {
        self.idle = Some(limit);
        self
    }

    /// Sets how many bytes of each output stream are kept.
    #[must_use]
    pub fn keep(mut self, bytes: usize) -> Self {
        self.keep = bytes;
        self
    }
}

/// The command line, quoted so that it can be pasted into a shell. Variables and input are left out.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Quoted(&self.program))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", Quoted(arg)))
    }
}

/// Shows the names of variables only: their values and the input may be confidential.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("line", &self.to_string())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .field("stdin_bytes", &self.stdin.as_ref().map(Vec::len))
            .field("timeout", &self.timeout)
            .field("idle", &self.idle)
            .finish_non_exhaustive()
    }
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
        if !self.0.is_empty() && self.0.chars().all(plain) {
            f.write_str(self.0)
        } else {
            write!(f, "'{}'", self.0.replace('\'', r"'\''"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_can_be_pasted_into_a_shell() {
        let command = Command::new("git").args(["commit", "-m", "it's done", ""]);
        assert_eq!(command.to_string(), r"git commit -m 'it'\''s done' ''");
    }

    #[test]
    fn debug_shows_no_values() {
        let command = Command::new("env").env("TOKEN", "s3cret").stdin(*b"s3cret");
        assert!(!format!("{command:?}").contains("s3cret"));
    }
}
