//! Images, on a real engine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests inspect the host and panic on the first failure"
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
