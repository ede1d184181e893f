//! The API on a real `ralph serve` process, over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests inspect the host and panic on the first failure"
)]

mod accounts;
mod attacks;
mod changing;
mod creating;
mod document;
mod elsewhere;
mod fuzz;
mod hosts;
mod listing;
mod login;
mod metrics;
mod modes;
mod reading;
mod service;
mod sharing;
mod sockets;
mod steering;
mod working;

use ::support::{self, need};
