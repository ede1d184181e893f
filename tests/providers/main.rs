//! Failures of the providers with VMs or remote sandboxes: nothing leaks, nothing is lost, and messages have hints.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests inspect the host and panic on the first failure"
)]

mod agents;
mod choosing;
mod daytona;
mod daytona_faults;
mod daytona_host;
mod daytona_images;
mod daytona_runs;
mod docker_sandbox;
mod life;
mod network;
mod official;
mod selftest;
mod site;
mod smoke;
use ::support::{self, need};
mod tart;

use ralph::exec::{Command, Discard, Exit};
use ralph::id::RunId;
use ralph::network::Policy;
use ralph::sandbox::{Sandbox, SandboxError, SandboxSpec};

/// A sandbox without a network, from this image.
fn spec(image: &str) -> SandboxSpec {
    SandboxSpec {
        image: Some(image.to_owned()),
        network: Policy::deny(),
        ..SandboxSpec::unrestricted(RunId::random())
    }
}

async fn witness(sandbox: &dyn Sandbox, line: &str) -> Exit {
    sandbox
        .exec_trusted(&Command::shell(line), &mut Discard)
        .await
        .unwrap()
}

/// An error with its cause and its hint.
fn full_message(error: &SandboxError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!(
        "{error}{} ({})",
        source.unwrap_or_default(),
        error.hint().unwrap_or_default()
    )
}
