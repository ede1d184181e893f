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

mod examples;
mod guide;
mod litellm;
mod model;
mod patch;
mod reference;
