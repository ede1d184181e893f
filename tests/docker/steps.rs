//! Calls a function after each step that starts a sandbox on a sealed network.

use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default, set_global_default};
use tracing::{Event, Metadata, Subscriber};

/// All steps in order. `sandbox-created` may come earlier, because it happens while the network is set up.
pub const ALL: [&str; 11] = [
    "holder-created",
    "holder-started",
    "holder-reached",
    "walls-raised",
    "listeners-handed-over",
    "gateway-opened",
    "sandbox-created",
    "sandbox-started",
    "session-opened",
    "kernel-asked",
    "proved",
];

/// Observes the steps on this thread until the guard is dropped.
pub fn on_this_thread(observer: impl Fn(&str) + Send + Sync + 'static) -> DefaultGuard {
    set_default(Steps(observer))
}

/// Observes all steps of this process.
pub fn everywhere(observer: impl Fn(&str) + Send + Sync + 'static) {
    set_global_default(Steps(observer)).unwrap();
}

struct Steps<F>(F);

/// The field that holds the name of a step.
const STEP: &str = "step";

impl<F: Fn(&str) + 'static> Subscriber for Steps<F>
where
    Self: Send + Sync,
{
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.fields().field(STEP).is_some()
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut StepVisitor(&self.0));
    }

    // There are no spans.
    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct StepVisitor<'a, F>(&'a F);

impl<F: Fn(&str)> Visit for StepVisitor<'_, F> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == STEP {
            (self.0)(&format!("{value:?}"));
        }
    }
}
