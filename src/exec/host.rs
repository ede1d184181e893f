//! The one place that starts processes on the host.
