//! The gateway, on real sockets: real clients on one side, whole servers on the other.
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

mod audit;
mod crowd;
mod dns;
mod flows;
mod http;
mod http2;
mod inspection;
mod names;
mod narrower;
mod own_address;
mod proxy;
mod site;
mod smuggling;
mod tcp;
mod tls;
mod tools;
mod world;
