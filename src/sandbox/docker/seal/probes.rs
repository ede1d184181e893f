//! Probes that the guest runs in the sandbox, and canaries on the host that must not receive them.

use std::time::Duration;

use super::super::super::canary::Canaries;
use super::super::super::session::WarmSession;
use super::super::container::GUEST;
use super::SealError;

use crate::exec::{Command, Discard};
use crate::network::Policy;
use crate::network::probe::{Beacon, ProbeResult, checks};

/// The timeout of all probes together. Each probe has a shorter one.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs all probes and returns the first failure.
pub(super) async fn run_probes(
    session: &WarmSession,
    policy: &Policy,
    beacon: &Beacon,
) -> Result<(), SealError> {
    let canaries = Canaries::open(None).await?;
    let checks = checks(policy, beacon, &canaries.all());
    let probes = checks.iter().map(|check| check.probe.to_string());
    let command = Command::new(GUEST).args(std::iter::once("probe".to_owned()).chain(probes));
    let tried = session.exec(&command.timeout(TIMEOUT), &mut Discard).await;
    let exit = tried.map_err(|error| SealError::NotProbed(error.to_string()))?;
    let printed = exit.stdout.text();
    let seen: Vec<ProbeResult> = printed.lines().map(ProbeResult::parse).collect();
    if !exit.success() || seen.len() != checks.len() {
        let reason = format!("the guest failed: {}, {}", exit.status, exit.stderr.text().trim());
        return Err(SealError::NotProbed(reason));
    }
    if let Some(address) = canaries.reached() {
        return Err(SealError::Escaped(address));
    }
    let failure = checks
        .iter()
        .zip(&seen)
        .find_map(|(check, seen)| check.failure(seen));
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}
