//! The `docker` provider on a real engine: what its containers may do, how they live and end, and whole runs in them.
//! What every provider must hold is in `tests/conformance`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests look at the machine they run on and stop where they stand"
)]

mod daemon;
mod door;
mod faults;
mod hardening;
mod hostile;
mod killed;
mod life;
mod orphans;
mod room;
mod runs;
mod seal;
mod seal_lost;
mod sealed;
mod site;
#[path = "../support/mod.rs"]
mod support;
mod unshared;
