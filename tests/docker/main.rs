//! The `docker` provider on a real engine: what its containers may do, how they live and end, and whole runs in them.
//! What every provider must hold is in `tests/conformance`.
// Only Linux: the engine must share its kernel with the tests.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests inspect the host and panic on the first failure"
)]

mod allowed;
mod daemon;
mod docker_test;
#[allow(dead_code, reason = "`tests/escapes` uses all of it")]
mod elsewhere;
mod faults;
mod forged;
mod hardening;
mod hostile;
mod inspected;
mod interrupted_creation;
mod kernels;
mod killed;
mod life;
mod mid_download;
mod orphans;
mod presets;
mod proxy;
mod refused;
mod relayed;
mod remote;
mod rootless;
mod runs;
mod runtimes;
mod seal;
mod seal_lost;
mod sealed;
mod session_socket;
mod setup;
mod site;
mod steps;
use ::support::{self, need};
mod two_engines;
