//! Runs coding agents unattended, in a loop, inside a sandbox, and hands back a pull request.

pub mod agent;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
#[cfg(feature = "cli")]
pub mod config;
pub mod engine;
pub mod event;
pub mod exec;
pub mod id;
pub mod image;
pub mod model;
pub mod network;
pub mod runner;
pub mod sandbox;
pub mod scm;
pub mod secret;
pub mod state;
pub mod task;
pub mod usage;
