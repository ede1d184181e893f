//! Whoever is told of each step towards a sealed network, when it is done and before anything else is.

use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default, set_global_default};
use tracing::{Event, Metadata, Subscriber};

/// Tells of the steps that are done on this thread, until it is dropped.
pub fn on_this_thread(told: impl Fn(&str) + Send + Sync + 'static) -> DefaultGuard {
    set_default(Steps(told))
}

/// Tells of all steps of this process.
pub fn everywhere(told: impl Fn(&str) + Send + Sync + 'static) {
    set_global_default(Steps(told)).unwrap();
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
        event.record(&mut Told(&self.0));
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

struct Told<'a, F>(&'a F);

impl<F: Fn(&str)> Visit for Told<'_, F> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == STEP {
            (self.0)(&format!("{value:?}"));
        }
    }
}
