//! The session and the guest at its other end, which runs here as a plain process: no sandbox is needed to try them.
// Only Linux: the guest runs as a process of the host.
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

mod flow;
mod guest_session;
mod hostile;
mod life;
mod own_port;
mod protocol;
use ::support::{self, need};
