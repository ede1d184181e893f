//! Attacks from inside a sandbox on a real engine, observed from outside, and what must work in spite of the defences.
//! Other suites cover:
//!
//! - interrupted creation, ralph killed during a download, lost parts of a sandbox, disk, memory and processes:
//!   `tests/docker` (`interrupted_creation`, `mid_download`, `seal_lost`, `hostile`);
//! - privileges and leftovers: `matrix` here, `tests/docker` (`hardening`, `orphans`);
//! - the phantom and its credential: `tests/broker`, `tests/agents`;
//! - ambiguous requests, names that change their address, many and slow connections: `tests/gateway`;
//! - a hostile bundle: `tests/it/scm`.
// Only Linux: the engine must share its kernel with the tests.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests inspect the host and panic on the first failure"
)]

mod attacks;
#[allow(dead_code, reason = "this binary uses a part of it")]
#[path = "../docker/docker_test.rs"]
mod docker_test;
#[allow(dead_code, reason = "this binary uses a part of it")]
#[path = "../docker/elsewhere.rs"]
mod elsewhere;
mod interrupted;
mod matrix;
#[allow(dead_code, reason = "this binary uses a part of it")]
#[path = "../docker/sealed.rs"]
mod sealed;
use ::support::{self, need};
mod tools;
mod web;
mod world;
