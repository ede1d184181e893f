//! What stands in for the providers, shared with the tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    dead_code,
    unreachable_pub,
    reason = "it is a part of the tests, which use more of it and stop where they stand"
)]

#[path = "../../tests/support/base.rs"]
pub mod base;
#[path = "../../tests/support/daytona/mod.rs"]
pub mod daytona;
#[path = "../../tests/support/engine.rs"]
pub mod engine;
#[path = "../../tests/support/skip.rs"]
pub mod skip;
#[path = "../../tests/support/vms/mod.rs"]
pub mod vms;
