//! One body of tests, run for every provider.

#[path = "../support/mod.rs"]
mod support;
