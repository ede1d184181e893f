//! The real agent programs, whole tasks long, against scripted model servers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests inspect the host and panic on the first failure"
)]

mod bench;
mod broker;
#[cfg(target_os = "linux")] // It reads `/proc`.
mod canaries;
mod choice;
mod container;
mod crash;
mod cursor;
mod example;
mod gemini;
mod github;
mod hosts;
mod litellm;
mod logins;
mod opencode;
mod preflight;
mod selftest;
mod settings;
mod shown;
mod stubborn;
use ::support::{self, need};
mod tasks;
mod timers;
mod traces;
mod trouble;
