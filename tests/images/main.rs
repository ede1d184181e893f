//! Images, on a real engine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests look at the machine they run on and stop where they stand"
)]

#[path = "../support/mod.rs"]
mod support;

mod archive;
mod build;
mod command;
mod disk;
mod engine;
mod flake;
mod load;
mod project;
mod stream;
mod trouble;
mod workshop;
