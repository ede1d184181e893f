//! Commands as values, and what became of them.
//!
//! A [`Command`] is a program and its arguments, never a shell line. Whoever runs one (the host, a sandbox)
//! reports an [`Exit`] and, while it runs, each [`OutputLine`].

mod command;
mod exit;
pub mod host;
mod lines;
mod recording;

pub use command::Command;
pub use exit::{Captured, Exit, Status, Streams};
pub use host::Host;
pub(crate) use recording::Recording;

/// Which of the two output streams a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line a command printed, without its line break. A line over 64 KiB arrives in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputLine {
    /// Where it was printed.
    pub stream: Stream,
    /// What was printed; bytes that are no UTF-8 are replaced.
    pub text: String,
}

/// Receives a command's output while it runs. A slow sink slows the command down; nothing is buffered without bound.
pub trait OutputSink: Send {
    /// Takes one line.
    fn line(&mut self, line: OutputLine);

    /// Takes a piece of a stream just as it was printed, for those who want bytes and not lines.
    fn bytes(&mut self, _stream: Stream, _bytes: &[u8]) {}

    /// Whether it looks at lines at all. Output nobody looks at is not cut into lines.
    fn wants_lines(&self) -> bool {
        true
    }
}

impl OutputSink for Vec<OutputLine> {
    fn line(&mut self, line: OutputLine) {
        self.push(line);
    }
}

/// Takes every line and keeps none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl OutputSink for Discard {
    fn line(&mut self, _line: OutputLine) {}

    fn wants_lines(&self) -> bool {
        false
    }
}
