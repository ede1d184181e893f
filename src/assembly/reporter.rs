//! Where warnings and progress go before a run emits events of its own.

use crate::exec::Discard;
use crate::image::ImageObserver;

/// Receives what a person should know while a run is assembled.
pub trait AssemblyReporter: Send + Sync {
    /// Something that works differently than a person may expect.
    fn warn(&self, message: &str);

    /// Something that is worth knowing and needs no action.
    /// Ignored by default.
    fn inform(&self, _message: &str) {}

    /// Receives the progress of an image build. Ignored by default.
    fn image_observer(&self) -> Box<dyn ImageObserver> {
        Box::new(Discard)
    }
}

/// Ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentReporter;

impl AssemblyReporter for SilentReporter {
    fn warn(&self, _message: &str) {}
}
