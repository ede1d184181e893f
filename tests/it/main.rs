//! Integration tests, a file per boundary.
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

mod actions;
mod config_cli;
mod control;
mod demo;
mod direct;
mod documents;
mod events;
mod evidence;
mod examples;
mod failures;
mod fake_engine;
mod fake_github;
mod guest_build;
mod guide;
mod init;
mod json_output;
mod lint_cli;
mod litellm;
mod metrics;
mod model;
mod network_cli;
mod next_step;
mod nix;
mod notify;
#[cfg(target_os = "linux")] // It reads `/proc`.
mod output;
mod patch;
mod paths;
mod picture;
mod profiles;
mod redaction;
mod reference;
mod scm;
mod selftest;
mod state;
mod steer;
mod terminal;
mod traces;
mod watch;
