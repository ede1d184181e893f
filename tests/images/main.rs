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

use ::support::{self, need};

mod agents;
mod archive;
mod build;
mod check;
mod command;
mod deployment;
mod disk;
mod engine;
mod example;
mod flake;
mod load;
mod own_engine;
mod platform;
mod project;
mod prune;
mod registry;
mod share;
mod status;
mod stream;
mod terminal;
mod trouble;
mod workflow;
mod workshop;
