//! Commands as values, and how they end.
//!
//! A [`Command`] is a program and its arguments, never a shell line. The host or a sandbox runs it, reports each
//! [`OutputLine`] while it runs, and returns an [`Exit`].
//!
//! ```
//! use ralph::exec::Command;
//!
//! let command = Command::new("git").args(["log", "--oneline"]);
//! assert_eq!(command.to_string(), "git log --oneline");
//! ```

mod command;
mod exit;
mod host;
mod lines;
mod output;
#[cfg(test)]
pub(crate) mod tests;
mod wait_limits;

use std::io;

pub use command::Command;
pub use exit::{CapturedOutput, Exit, ExitStatus};
pub use host::{CommandStdout, Host, RunningCommand};
pub(crate) use host::{ProcessInfo, send_input};
pub(crate) use output::CommandOutput;
pub(crate) use wait_limits::WaitLimits;

/// Runs file operations or system calls that block on a thread of their own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// One of the two output streams of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line that a command printed, without its line break. A line over 64 KiB arrives in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputLine {
    /// The stream it was printed to.
    pub stream: OutputStream,
    /// The text. Invalid UTF-8 is replaced.
    pub text: String,
}

/// Receives a command's output while it runs. A slow sink slows the command down: nothing is buffered without bound.
pub trait OutputSink: Send {
    /// Takes one line.
    fn line(&mut self, line: OutputLine);

    /// Takes a chunk of a stream exactly as it was printed. Does nothing unless a sink overrides it.
    fn bytes(&mut self, _stream: OutputStream, _bytes: &[u8]) {}

    /// Whether the sink uses [`line`](Self::line). If not, the output is not split into lines.
    fn wants_lines(&self) -> bool {
        true
    }
}

impl OutputSink for Vec<OutputLine> {
    fn line(&mut self, line: OutputLine) {
        self.push(line);
    }
}

/// A sink that ignores all output.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl OutputSink for Discard {
    fn line(&mut self, _line: OutputLine) {}

    fn wants_lines(&self) -> bool {
        false
    }
}
