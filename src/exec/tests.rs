//! What tests of commands share.

/// The search path of the tests themselves. Where Nix builds, and on NixOS, there are no programs in `/usr/bin`.
#[allow(clippy::disallowed_methods, reason = "only tests use it")]
pub(crate) fn search_path() -> String {
    std::env::var("PATH").unwrap()
}
