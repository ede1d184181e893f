//! The forge `github` and everything else that talks to GitHub, on a whole fake of it behind Prism, which checks every request
//! and every answer against GitHub's own document.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests look at the machine they run on and stop where they stand"
)]

mod ci;
mod claims;
mod desk;
mod forge;
mod issues;
mod notes;
mod poll;
mod runs;
mod stacks;
mod statuses;

use ::support::{self, need};
