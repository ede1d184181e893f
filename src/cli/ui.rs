//! Output: stdout is for data, stderr is for messages. All of it is written here, and nothing in it can command a terminal.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::execute;
use schemars::JsonSchema;
use serde::Serialize;

use crate::assembly::{AssemblyErrorKind, AssemblyReporter};
use crate::exec::OutputStream;
use crate::image::ImageObserver;
use crate::text::visible;

use super::image::observer;
use super::{CliError, CliExit, activity};

/// Why stdout, of which a process has one, could not be written.
static LOST_OUTPUT: OnceLock<String> = OnceLock::new();

fn stdout_error(reason: &str) -> CliError {
    CliError::runtime(format!("cannot write to stdout: {reason}"))
        .with_hint("the output is incomplete: write it to a place with free space; after a run, `ralph logs --json` prints its events again")
}

/// Writes to stdout and stderr.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ui {
    /// Whether colours may be used on stderr.
    pub(super) colour: bool,
    /// Whether the command prints JSON: then a program reads it, which needs no next step.
    pub(super) prints_json: bool,
}

#[expect(clippy::unused_self, reason = "only code that was given a Ui may print")]
impl Ui {
    /// Colours are used on a terminal, unless `plain` is set.
    #[must_use]
    pub(super) fn new(plain: bool) -> Self {
        Self {
            colour: !plain && std::io::stderr().is_terminal(),
            prints_json: false,
        }
    }

    /// Writes a message to stderr. A closed stderr is ignored.
    pub(super) fn say(self, text: impl Display) {
        self.say_styled(None, "", text);
    }

    /// Writes a message to stderr whose beginning, or all of it, has a style: the number of an escape code.
    pub(super) fn say_styled(self, style: Option<&str>, styled: &str, rest: impl Display) {
        let (styled, rest) = (visible(styled), rest.to_string());
        let rest = visible(&rest);
        let _ = activity::above(|| match style.filter(|_| self.colour) {
            Some(style) => writeln!(std::io::stderr().lock(), "\x1b[{style}m{styled}\x1b[0m{rest}"),
            None => writeln!(std::io::stderr().lock(), "{styled}{rest}"),
        });
    }

    /// Writes what to do next to stderr, as the last line of a command that prints no JSON.
    pub(super) fn next(self, text: impl Display) {
        if !self.prints_json {
            self.say(format_args!("next: {text}"));
        }
    }

    /// Writes data to stdout. A closed pipe is ignored.
    pub(super) fn data(self, text: impl Display) -> Result<(), CliError> {
        self.raw(visible(&text.to_string()))
    }

    /// Writes data to stdout as it is, because the user asked for that.
    pub(super) fn raw(self, text: impl Display) -> Result<(), CliError> {
        self.checked(activity::above(|| writeln!(std::io::stdout().lock(), "{text}")))
    }

    /// Writes the output of a command to the same stream as it is. The caller has made it visible, or the user asked for it.
    /// A failure does not end the command; [`Ui::lost_output`] reports it.
    pub(super) fn bytes(self, stream: OutputStream, bytes: &[u8]) {
        let _ = match stream {
            OutputStream::Stdout => {
                let mut stdout = std::io::stdout().lock();
                self.checked(stdout.write_all(bytes).and_then(|()| stdout.flush()))
            }
            OutputStream::Stderr => {
                let _ = std::io::stderr().lock().write_all(bytes);
                Ok(())
            }
        };
    }

    /// Keeps the first error of writing to stdout. A closed pipe is not an error.
    fn checked(self, written: std::io::Result<()>) -> Result<(), CliError> {
        match written {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(stdout_error(LOST_OUTPUT.get_or_init(|| error.to_string())))
            }
            _ => Ok(()),
        }
    }

    /// Why stdout is incomplete, if it is.
    pub(super) fn lost_output(self) -> Option<CliError> {
        LOST_OUTPUT.get().map(|reason| stdout_error(reason))
    }

    /// Writes a value as JSON.
    pub(super) fn json<T: Serialize + JsonSchema>(self, value: &T) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| CliError::runtime(format!("cannot write JSON: {error}")))?;
        self.data(text)
    }

    /// Writes a value as JSON or, without `--json`, as this text.
    pub(super) fn report<T: Serialize + JsonSchema>(
        self,
        json: bool,
        value: &T,
        text: impl Display,
    ) -> Result<(), CliError> {
        if json { self.json(value) } else { self.data(text) }
    }

    /// Shows an error, where the documentation explains it, and last what to do next.
    pub(super) fn error(self, error: &CliError) -> CliExit {
        self.say_styled(Some("1;31"), "ralph:", format_args!(" {error}"));
        self.say(format_args!("see: {}", error.topic().url()));
        if let Some(hint) = error.hint() {
            self.say(format_args!("hint: {hint}"));
        }
        match error.kind() {
            AssemblyErrorKind::Usage | AssemblyErrorKind::NotFound => CliExit::Usage,
            AssemblyErrorKind::Runtime | AssemblyErrorKind::Conflict => CliExit::Failure,
            AssemblyErrorKind::Paused => CliExit::Paused,
            AssemblyErrorKind::Interrupted => CliExit::Interrupted,
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

/// The whole terminal, on stdout. It is put back into the state that it had when this is dropped, and on a panic before its
/// message is printed. What is drawn there must be visible text.
pub(super) struct FullScreen(DefaultTerminal);

impl FullScreen {
    pub(super) fn open() -> std::io::Result<Self> {
        let opened = ratatui::try_init().and_then(|terminal| {
            // Without it, a text that is pasted would be keys.
            execute!(std::io::stdout(), EnableBracketedPaste)?;
            Ok(Self(terminal))
        });
        opened.inspect_err(|_| {
            let _ = ratatui::try_restore();
        })
    }

    pub(super) fn get(&mut self) -> &mut DefaultTerminal {
        &mut self.0
    }

    /// Whether a person sits at this process: stdin and stdout are a terminal.
    pub(super) fn is_possible() -> bool {
        std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = self.0.show_cursor();
        let _ = execute!(std::io::stdout(), DisableBracketedPaste);
        let _ = ratatui::try_restore();
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

/// The width of the terminal, if stderr is one that knows it.
pub(super) fn columns() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}
