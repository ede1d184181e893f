//! What the test suites share: whole fakes on real sockets, real programs, and how a test skips itself.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "test code may panic, and it reads the environment that `tests/run` sets up"
)]

pub mod base;
pub mod browser;
pub mod chat_server;
pub mod daytona;
pub mod derived;
pub mod dir_sandbox;
pub mod direct_server;
pub mod engine;
pub mod fake_github;
pub mod git_http;
pub mod github;
pub mod guest;
pub mod json_shape;
pub mod litellm;
pub mod model;
pub mod model_server;
pub mod model_service;
pub mod nix;
pub mod postgres;
pub mod ralph;
pub mod receiver;
pub mod security_page;
pub mod skip;
pub mod small_disk;
pub mod sshd;
pub mod vms;
