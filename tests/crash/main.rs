//! What a run survives: `kill -9` at any moment, Ctrl-C, lost and torn files, a full disk, another host.
//!
//! Everything here drives the real program from outside and looks at what it leaves behind.
// Only Linux: processes are found in `/proc`.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests read the environment and panic"
)]

use ::support::need;

mod decided;
mod disk;
mod ending;
mod interrupt;
mod kill;
mod other_host;
mod resume;
mod state_remote;
mod world;
