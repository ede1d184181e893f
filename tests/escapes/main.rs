//! Attacks from inside a sandbox on a real engine, told at the receiving side, and what must work nevertheless. What holds
//! while a sandbox is made, when parts of it are lost and against its own disk and memory is in `tests/docker`; what holds
//! against a hostile bundle is in `tests/it/scm`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests look at the machine they run on and stop where they stand"
)]

mod attacks;
mod interrupted;
mod matrix;
#[allow(dead_code, reason = "this binary uses a part of it")]
#[path = "../docker/room.rs"]
mod room;
#[allow(dead_code, reason = "this binary uses a part of it")]
#[path = "../docker/sealed.rs"]
mod sealed;
#[path = "../support/mod.rs"]
mod support;
mod tools;
mod web;
mod world;
