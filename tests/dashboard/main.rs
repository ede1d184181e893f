//! The dashboard of a real `ralph dashboard` process, in a real Chromium.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests look at the host they run on and panic when they fail"
)]

mod accessibility;
mod accounts;
mod hostile;
mod log;
mod login;
mod steering;
mod watching;

use ::support::{self, need};
