//! Attacks from inside a sandbox on a real engine, told at the receiving side, and what must work nevertheless. Beside these:
//!
//! - each step of the making the last one, ralph killed in the midst of a download, parts of a sandbox lost, its own disk,
//!   memory and processes: `tests/docker` (`half_made`, `mid_download`, `seal_lost`, `hostile`);
//! - privileges, and what is left afterwards: `matrix` here, `tests/docker` (`hardening`, `orphans`);
//! - the phantom and the credential it stands for: `tests/broker`, `tests/agents`;
//! - requests that can be read in two ways, names that move, many and slow connections: `tests/gateway`;
//! - a hostile bundle: `tests/it/scm`.
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
#[allow(dead_code, reason = "this binary uses a part of it")]
#[path = "../docker/elsewhere.rs"]
mod elsewhere;
mod interrupted;
mod matrix;
#[allow(dead_code, reason = "this binary uses a part of it")]
#[path = "../docker/room.rs"]
mod room;
#[allow(dead_code, reason = "this binary uses a part of it")]
#[path = "../docker/sealed.rs"]
mod sealed;
use ::support::{self, need};
mod tools;
mod web;
mod world;
