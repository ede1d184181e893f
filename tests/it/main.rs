//! Integration tests, a file per boundary.

#[path = "../support/mod.rs"]
mod support;
