//! What a run survives: `kill -9` at any moment, Ctrl-C, lost and torn files, a full disk, another machine.
//!
//! Everything here drives the real program from outside and looks at what it leaves behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests look at the machine they run on and stop where they stand"
)]

use ::support::need;

mod decided;
mod disk;
mod ending;
mod interrupt;
mod kill;
mod machine;
mod resume;
mod world;
