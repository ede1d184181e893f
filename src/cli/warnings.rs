//! Shows the warnings of the library on stderr: what it skipped, or will try again.

use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Metadata, Subscriber};

use super::ui::Ui;
use crate::assembly::AssemblyReporter;

/// The field of an event that has its message.
const MESSAGE: &str = "message";

/// Shows warnings from now on, unless the program that uses this library has a subscriber of its own.
pub(super) fn show(ui: Ui) {
    let _ = set_global_default(WarningPrinter(move |warning: &str| ui.warn(warning)));
}

struct WarningPrinter<P>(P);

impl<P: Fn(&str) + 'static> Subscriber for WarningPrinter<P> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN && metadata.target().starts_with("ralph")
    }

    fn event(&self, event: &Event<'_>) {
        let mut warning = WarningText::default();
        event.record(&mut warning);
        (self.0)(&warning.line());
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A warning in words: its message, its fields and the error that caused it.
#[derive(Default)]
struct WarningText {
    message: String,
    fields: Vec<String>,
    cause: Option<String>,
}

impl WarningText {
    fn line(self) -> String {
        let mut line = self.message;
        if !self.fields.is_empty() {
            // Writing to a string does not fail.
            let _ = write!(line, " ({})", self.fields.join(", "));
        }
        if let Some(cause) = self.cause {
            let _ = write!(line, ": {cause}");
        }
        line
    }
}

impl Visit for WarningText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            MESSAGE => self.message = format!("{value:?}"),
            "error" => self.cause = Some(format!("{value:?}")),
            name => self.fields.push(format!("{name}: {value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn warnings_of_the_library_are_lines_and_nothing_else_is_shown() {
        let (sender, receiver) = channel();
        let printer = WarningPrinter(move |warning: &str| sender.send(warning.to_owned()).unwrap());
        tracing::subscriber::with_default(printer, || {
            let error = std::io::Error::other("no space left");
            tracing::warn!(sandbox = "blue", %error, count = 2, "cannot remove a sandbox");
            tracing::warn!("short");
            tracing::debug!("a detail");
            tracing::warn!(target: "hyper", "of another crate");
        });
        assert_eq!(
            receiver.try_iter().collect::<Vec<_>>(),
            [
                "cannot remove a sandbox (sandbox: blue, count: 2): no space left",
                "short"
            ]
        );
    }
}
