//! Runs coding agents unattended, in a loop, inside a sandbox, and hands back a pull request.

pub mod agent;
pub mod clock;
#[cfg(feature = "cli")]
pub mod config;
pub mod exec;
pub mod id;
pub mod model;
pub mod network;
pub mod sandbox;
pub mod scm;
pub mod secret;
pub mod task;
pub mod usage;
