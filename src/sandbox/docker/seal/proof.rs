//! The proof from inside: probes that the guest carries out in the sandbox, and canaries that must not hear them.

use std::time::Duration;

use super::super::super::canary::Canaries;
use super::super::super::session::Session;
use super::super::plan::GUEST;
use super::SealError;

use crate::exec::{Command, Discard};
use crate::network::Policy;
use crate::network::probe::{Beacon, ProbeResult, checks};

/// How long all probes together may take; each has its own, shorter time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tries everything from inside. The first thing that is not as it must be is the error.
pub(super) async fn carry_out(session: &Session, policy: &Policy, beacon: &Beacon) -> Result<(), SealError> {
    let opened = tokio::task::spawn_blocking(Canaries::open).await;
    let canaries = opened.map_err(|error| SealError::Untried(error.to_string()))??;
    let checks = checks(policy, beacon, &canaries.all());
    let probes = checks.iter().map(|check| check.probe.to_string());
    let command = Command::new(GUEST).args(std::iter::once("probe".to_owned()).chain(probes));
    let tried = session.exec(&command.timeout(PATIENCE), &mut Discard).await;
    let exit = tried.map_err(|error| SealError::Untried(error.to_string()))?;
    let printed = exit.stdout.text();
    let seen: Vec<ProbeResult> = printed.lines().map(ProbeResult::parse).collect();
    if !exit.success() || seen.len() != checks.len() {
        let reason = format!("the guest: {}, {}", exit.status, exit.stderr.text().trim());
        return Err(SealError::Untried(reason));
    }
    if let Some(address) = canaries.heard() {
        return Err(SealError::Heard(address));
    }
    let failure = checks
        .iter()
        .zip(&seen)
        .find_map(|(check, seen)| check.failure(seen));
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}
