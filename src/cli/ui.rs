//! Output: stdout is for data, stderr is for messages.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::assembly::{AssemblyErrorKind, AssemblyReporter};
use crate::exec::OutputStream;
use crate::image::ImageObserver;

use super::image::observer;
use super::{CliError, CliExit};

/// Writes to stdout and stderr.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ui {
    /// Whether colours may be used on stderr.
    pub(super) colour: bool,
}

#[expect(clippy::unused_self, reason = "only code that was given a Ui may print")]
impl Ui {
    /// Colours are used on a terminal, unless `no_color` is set.
    #[must_use]
    pub(super) fn new(no_color: bool) -> Self {
        Self {
            colour: !no_color && std::io::stderr().is_terminal(),
        }
    }

    /// Writes a message to stderr. A closed stderr is ignored.
    pub(super) fn say(self, text: impl Display) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Writes data to stdout. A closed pipe is ignored.
    pub(super) fn data(self, text: impl Display) -> Result<(), CliError> {
        match writeln!(std::io::stdout().lock(), "{text}") {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(CliError::runtime(format!("cannot write to stdout: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Writes the output of a command to the same stream.
    pub(super) fn bytes(self, stream: OutputStream, bytes: &[u8]) {
        // A closed pipe must not end the command.
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

    /// Writes a value as JSON or, without `--json`, as this text.
    pub(super) fn report<T: Serialize>(
        self,
        json: bool,
        value: &T,
        text: impl Display,
    ) -> Result<(), CliError> {
        if json { self.json(value) } else { self.data(text) }
    }

    /// Shows an error and its hint.
    pub(super) fn error(self, error: &CliError) -> CliExit {
        let name = if self.colour {
            "\x1b[1;31mralph:\x1b[0m"
        } else {
            "ralph:"
        };
        self.say(format_args!("{name} {error}"));
        if let Some(hint) = error.hint() {
            self.say(format_args!("hint: {hint}"));
        }
        match error.kind() {
            AssemblyErrorKind::Usage => CliExit::Usage,
            AssemblyErrorKind::Runtime => CliExit::Failure,
            AssemblyErrorKind::Paused => CliExit::Paused,
        }
    }
}

impl AssemblyReporter for Ui {
    fn warn(&self, message: &str) {
        self.say(format_args!("warning: {message}"));
    }

    fn inform(&self, message: &str) {
        self.say(message);
    }

    fn image_observer(&self) -> Box<dyn ImageObserver> {
        observer(*self)
    }
}

/// Rows as lines with aligned columns.
pub(super) fn align_columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
