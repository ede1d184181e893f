//! What the test binaries share: whole fakes on real sockets, and the way a test says that it cannot run here.
#![allow(dead_code, unused_macros, reason = "each test binary uses a part of it")]

pub mod base;
pub mod chat_server;
pub mod daytona;
pub mod derived;
pub mod dir_sandbox;
pub mod engine;
pub mod github;
pub mod guest;
pub mod litellm;
pub mod machines;
pub mod model;
pub mod model_server;
pub mod model_service;
pub mod nix;
pub mod ralph;
pub mod skip;
