//! Credentials, metering and tokens: the real binary and real sockets, whole services on the other side.
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

mod budget;
mod calls;
mod github;
mod inject;
mod injection;
mod keychain;
mod litellm;
mod login;
mod refuse;
mod stream;
mod token_cli;
mod usage;
mod world;
