//! Tests of the repository itself: what its documents claim about the code, and what must not be in it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests inspect the host and panic on the first failure"
)]

mod arrows;
mod benchmarks;
mod documents;
mod duties;
mod layers;
mod names;
mod nix;
mod package;
mod repository;
mod rust;
mod scale;
mod text;
mod words;
mod workflows;

/// Fails with all findings at once.
fn none(what: &str, findings: impl IntoIterator<Item = String>) {
    let findings: Vec<String> = findings.into_iter().collect();
    assert!(findings.is_empty(), "{what}:\n  {}", findings.join("\n  "));
}
