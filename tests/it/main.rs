//! Integration tests, a file per boundary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests look at the machine they run on and stop where they stand"
)]

mod scm;
#[path = "../support/mod.rs"]
mod support;

mod litellm;
mod model;
mod nix;
mod patch;
mod reference;
