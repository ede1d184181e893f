//! `ralph submit` and `ralph worker` as processes, with a scripted model, on SQLite and on a real Postgres.
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

mod desk;
mod examples;
mod faults;
mod sandbox;
mod storm;
mod submit;
mod work;

use ::support::{self, need};
