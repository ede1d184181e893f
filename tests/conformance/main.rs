//! One body of tests, run for every provider.
//!
//! A contract is a plain function that takes a [`bench::Bench`]; the list at the top of its file makes it a test for
//! every provider, named `area::contract::provider`. A new provider is one line in `contract!`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests look at the machine they run on and stop where they stand"
)]

/// Makes each function a test for every provider.
macro_rules! contract {
    ($($check:ident),+ $(,)?) => {
        $(mod $check {
            contract!(@for local, session, docker, daytona, sbx, docker_sandbox_plugin, tart in $check);
        })+
    };
    (@for $($provider:ident),+ in $check:ident) => {
        $(#[tokio::test]
        async fn $provider() {
            let bench = crate::need!(crate::bench::$provider().await);
            crate::bench::in_time(super::$check(&bench)).await;
            crate::bench::in_time(bench.sandbox.close()).await.unwrap();
        })+
    };
}

mod bench;
mod environment;
mod exec;
mod files;
mod life;
mod output;
#[path = "../support/mod.rs"]
mod support;
