//! How a command ended and what is kept of its output.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::secret::Redactor;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It left with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It ran longer than its timeout and was ended.
    TimedOut,
    /// It printed nothing for longer than it may and was ended.
    Idle,
    /// It was killed because its sandbox used more memory than it has.
    OutOfMemory,
}

impl Status {
    /// Whether it left with code 0.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    /// The code a shell would report: 128 + the signal; 124, as `timeout` has it, when it was ended for its time.
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

impl fmt::Display for Status {
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

/// What became of the output streams when the command itself was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Both reached their end.
    Closed,
    /// A child the command left behind still held one; it was waited for, then ended.
    Held,
}

/// A command that has ended.
#[derive(Clone, Debug)]
pub struct Exit {
    /// How it ended.
    pub status: Status,
    /// How long it ran.
    pub duration: Duration,
    /// What is kept of its standard output.
    pub stdout: Captured,
    /// What is kept of its standard error.
    pub stderr: Captured,
    /// Whether something it left behind held the streams.
    pub streams: Streams,
}

impl Exit {
    /// Whether it left with code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status.success()
    }
}

/// The beginning and the end of an output stream, and how long it was. Bounded whatever the command prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    keep: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
    total: u64,
}

impl Captured {
    /// An empty capture that will keep about `keep` bytes: a quarter from the beginning, the rest from the end.
    #[must_use]
    pub fn with_limit(keep: usize) -> Self {
        Self {
            keep,
            head: Vec::new(),
            tail: Vec::new(),
            total: 0,
        }
    }

    /// Takes the next bytes of the stream.
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
        // Trimmed at twice the limit, so that a byte is moved once on average.
        if self.tail.len() > tail_limit * 2 {
            self.tail.drain(..self.tail.len() - tail_limit);
        }
    }

    /// How many bytes the stream had in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// All of the stream, or `None` when some of it was not kept.
    #[must_use]
    pub fn complete(&self) -> Option<Vec<u8>> {
        (self.cut() == 0).then(|| [self.head.as_slice(), self.tail.as_slice()].concat())
    }

    /// The kept text; where bytes were dropped a line says how many.
    #[must_use]
    pub fn text(&self) -> String {
        self.redacted(&Redactor::default())
    }

    /// The kept text without secrets, also where one stood across the place of dropped bytes.
    #[must_use]
    pub fn redacted(&self, redactor: &Redactor) -> String {
        match self.cut() {
            0 => redactor.redact(&lossy(&[self.head.as_slice(), self.tail.as_slice()].concat())),
            cut => {
                let (head, tail) = redactor.redact_cut(&lossy(&self.head), &lossy(&self.tail));
                format!("{head}\n[... {cut} bytes not kept ...]\n{tail}")
            }
        }
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
        let mut captured = Captured::with_limit(100);
        captured.push(b"hello ");
        captured.push("w\u{f6}rld".as_bytes());
        assert_eq!(captured.text(), "hello w\u{f6}rld");
        assert_eq!(captured.complete().unwrap(), "hello w\u{f6}rld".as_bytes());
    }

    #[test]
    fn a_long_stream_keeps_both_ends_and_stays_small() {
        let mut captured = Captured::with_limit(1000);
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
    }
}
