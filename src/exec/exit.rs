//! The result of a command: its exit status and its captured output.

use std::borrow::Cow;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process;
use std::time::Duration;

use crate::secret::Redactor;
use crate::text::counted;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It reached its timeout and was ended.
    TimedOut,
    /// It reached its limit on time without output and was ended.
    Idle,
    /// It was killed because its sandbox ran out of memory.
    OutOfMemory,
}

impl ExitStatus {
    /// Whether the exit code is 0.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    /// The code that a shell would report: 128 + the signal, or 124 (as `timeout` does) when a time limit was reached.
    #[must_use]
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::TimedOut | Self::Idle => 124,
            Self::OutOfMemory => 128 + 9,
        }
    }
}

impl From<process::ExitStatus> for ExitStatus {
    fn from(status: process::ExitStatus) -> Self {
        match status.code() {
            Some(code) => Self::Code(code),
            None => Self::Signal(status.signal().unwrap_or_default()),
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Idle => f.write_str("printed nothing for too long"),
            Self::OutOfMemory => f.write_str("killed: the sandbox is out of memory"),
        }
    }
}

/// A command that has ended.
#[derive(Clone, Debug)]
pub struct Exit {
    /// How it ended.
    pub status: ExitStatus,
    /// How long the command ran.
    pub duration: Duration,
    /// Its standard output.
    pub stdout: CapturedOutput,
    /// Its standard error.
    pub stderr: CapturedOutput,
    /// Whether a child process still held an output stream after the command itself had ended. Such a child is ended
    /// after a grace period.
    pub streams_held: bool,
}

impl Exit {
    /// Whether the exit code is 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status.success()
    }
}

/// The beginning and the end of an output stream, bounded in size, and its total length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedOutput {
    keep: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
    total: u64,
}

impl CapturedOutput {
    /// Creates an empty capture of about `keep` bytes: a quarter from the beginning, the rest from the end.
    #[must_use]
    pub fn with_limit(keep: usize) -> Self {
        Self {
            keep,
            head: Vec::new(),
            tail: Vec::new(),
            total: 0,
        }
    }

    /// Appends the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let head_room = (self.keep / 4).saturating_sub(self.head.len());
        let (to_head, to_tail) = bytes.split_at(head_room.min(bytes.len()));
        self.head.extend_from_slice(to_head);
        let tail_limit = self.keep - self.keep / 4;
        let to_tail = if to_tail.len() > tail_limit {
            self.tail.clear();
            &to_tail[to_tail.len() - tail_limit..]
        } else {
            to_tail
        };
        self.tail.extend_from_slice(to_tail);
        // Trimmed only at twice the limit, so that on average each byte is moved once.
        if self.tail.len() > tail_limit * 2 {
            self.tail.drain(..self.tail.len() - tail_limit);
        }
    }

    /// The length of the whole stream in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The whole stream, or `None` if some of it was dropped.
    #[must_use]
    pub fn complete(&self) -> Option<Vec<u8>> {
        (self.cut() == 0).then(|| [self.head.as_slice(), self.tail.as_slice()].concat())
    }

    /// The captured text. A line in the middle says how many bytes were dropped.
    #[must_use]
    pub fn text(&self) -> String {
        self.redacted(&Redactor::default())
    }

    /// The captured text without secrets, including a secret that dropped bytes cut in two.
    #[must_use]
    pub fn redacted(&self, redactor: &Redactor) -> String {
        match self.cut() {
            0 => redactor.redact(&lossy(&[self.head.as_slice(), self.tail.as_slice()].concat())),
            cut => {
                let (head, tail) = redactor.redact_cut(&lossy(&self.head), &lossy(&self.tail));
                let cut = counted(cut, "byte");
                format!("{head}\n[... {cut} not kept ...]\n{tail}")
            }
        }
    }

    /// The beginning of the stream, and its end if something between them was dropped.
    #[must_use]
    pub fn ends(&self) -> (String, Option<String>) {
        if let Some(whole) = self.complete() {
            return (lossy(&whole).into_owned(), None);
        }
        // How much more than the limit is kept depends on the pieces in which the output came.
        let limit = self.keep - self.keep / 4;
        let tail = &self.tail[self.tail.len().saturating_sub(limit)..];
        (lossy(&self.head).into_owned(), Some(lossy(tail).into_owned()))
    }

    fn cut(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_stream_is_kept_whole() {
        let mut captured = CapturedOutput::with_limit(100);
        captured.push(b"hello ");
        captured.push("w\u{f6}rld".as_bytes());
        assert_eq!(captured.text(), "hello w\u{f6}rld");
        assert_eq!(captured.complete().unwrap(), "hello w\u{f6}rld".as_bytes());
        assert_eq!(captured.ends(), ("hello w\u{f6}rld".to_owned(), None));
    }

    #[test]
    fn a_long_stream_keeps_both_ends_and_stays_small() {
        let mut captured = CapturedOutput::with_limit(1000);
        captured.push(b"first");
        for _ in 0..100_000 {
            captured.push(b"0123456789");
        }
        captured.push(b"last");
        assert_eq!(captured.total(), 1_000_009);
        assert!(captured.complete().is_none());
        let text = captured.text();
        assert!(
            text.starts_with("first") && text.ends_with("last") && text.len() < 2000,
            "{}",
            text.len()
        );
        let (head, tail) = captured.ends();
        assert_eq!((head.len(), tail.unwrap().len()), (250, 750));
    }
}
