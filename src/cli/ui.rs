//! The two streams: stdout is for data, stderr is for people.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::assembly::AssemblyReporter;
use crate::exec::OutputStream;
use crate::image::Observer;

use super::error::{CliError, Exit};
use super::image::observer;

/// Writes to the person at the terminal and to the program behind the pipe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ui {
    /// Whether colours may be used on stderr.
    pub(super) colour: bool,
}

#[expect(
    clippy::unused_self,
    reason = "whoever writes has been given the right to: it holds a Ui"
)]
impl Ui {
    /// Colours only on a terminal, and never against `NO_COLOR`.
    #[must_use]
    pub(super) fn new(no_color: bool) -> Self {
        Self {
            colour: !no_color && std::io::stderr().is_terminal(),
        }
    }

    /// Tells a person something. A closed stderr is no reason to stop.
    pub(super) fn say(self, text: impl Display) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Writes data. A reader that went away ends the output quietly.
    pub(super) fn data(self, text: impl Display) -> Result<(), CliError> {
        match writeln!(std::io::stdout().lock(), "{text}") {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(CliError::runtime(format!("cannot write to stdout: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Passes on what a command printed, where it printed it.
    pub(super) fn bytes(self, stream: OutputStream, bytes: &[u8]) {
        // A reader that went away is no reason to cut the command short.
        let _ = match stream {
            OutputStream::Stdout => std::io::stdout().lock().write_all(bytes),
            OutputStream::Stderr => std::io::stderr().lock().write_all(bytes),
        };
    }

    /// Writes a value as JSON.
    pub(super) fn json<T: Serialize>(self, value: &T) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| CliError::runtime(format!("cannot write JSON: {error}")))?;
        self.data(text)
    }

    /// Shows an error and its hint.
    pub(super) fn error(self, error: &CliError) -> Exit {
        let bold = |text: &str| {
            if self.colour {
                format!("\x1b[1;31m{text}\x1b[0m")
            } else {
                text.to_owned()
            }
        };
        self.say(format_args!("{} {}", bold("ralph:"), error.message));
        if let Some(hint) = &error.hint {
            self.say(format_args!("hint: {hint}"));
        }
        error.exit
    }
}

impl AssemblyReporter for Ui {
    fn warn(&self, message: &str) {
        self.say(format_args!("warning: {message}"));
    }

    fn inform(&self, message: &str) {
        self.say(message);
    }

    fn image_observer(&self) -> Box<dyn Observer> {
        observer(*self)
    }
}
