//! Attacks on other sandboxes of the suite: while the audit log is flooded, after the gateway has ended, and when the creation
//! of a sandbox was interrupted.

use std::time::{Duration, Instant};

use super::calls::BrokerTarget;
use super::scenario::{neighbour_spec, result, shell};
use super::setup::{AttackSetup, name};
use super::{AttackClass, AttackResult, Attacker, EscapeError, TRANSIT_TIME, Target};
use crate::gateway::audit::{AuditLog, AuditVerdict};
use crate::id::RunId;
use crate::network::probe::{Canary, Probe, ProbeResult};
use crate::sandbox::error::warn_not_removed;
use crate::sandbox::{Provider, RemovalScope, SandboxError, SandboxSpec};

/// How many requests flood the audit log: more than it has room for.
const FLOOD: usize = 500;
const FLOOD_TIMEOUT: Duration = Duration::from_secs(120);
/// How often the end of something is awaited, and how long in between.
const MAX_WAITS: usize = 100;
const WAIT: Duration = Duration::from_millis(100);
/// At how many points the creation of a sandbox is interrupted.
const INTERRUPTIONS: u32 = 8;
/// How many times in a row nothing is listed when nothing is left.
const QUIET: usize = 5;

/// Attacks a second sandbox, whose gateway has a credential and an audit log, and then ends that gateway.
pub(super) async fn attack_second_sandbox(
    target: &Target<'_>,
    setup: &AttackSetup,
) -> Result<Vec<AttackResult>, EscapeError> {
    let broker = BrokerTarget::open(setup, target.clock.clone())
        .await
        .map_err(EscapeError::Setup)?;
    let spec = broker
        .spec(neighbour_spec(target.spec))
        .map_err(EscapeError::Setup)?;
    let sandbox = target.provider.create(&spec).await?;
    let attacked = async {
        let attacker = Attacker::install(sandbox.as_ref(), setup).await?;
        let mut results = broker.attack(&attacker).await?;
        results.extend(flood_the_audit(&attacker, &broker).await?);
        Ok::<_, EscapeError>((results, sandbox.id().to_owned(), attacker.program.clone()))
    };
    let (mut results, id, program) = match attacked.await {
        Ok(attacked) => attacked,
        Err(error) => {
            warn_not_removed(sandbox.id(), sandbox.close().await);
            return Err(error);
        }
    };
    // Without its owner a sandbox has no gateway.
    drop(sandbox);
    results.extend(end_the_gateway(target.provider, &spec, setup, &id, program).await?);
    Ok(results)
}

/// After each flood, a connection that is allowed must be in the audit log.
async fn flood_the_audit(
    attacker: &Attacker<'_>,
    broker: &BrokerTarget<'_>,
) -> Result<Vec<AttackResult>, EscapeError> {
    let suffix = name("flood");
    let floods = [
        (
            "lookups of many denied names hide nothing",
            format!("lookup flood$i.{suffix}"),
        ),
        (
            "repeated lookups of a denied name hide nothing",
            format!("lookup {suffix}"),
        ),
        (
            "requests to many denied hosts hide nothing",
            format!("get flood$i.{suffix} 192.0.2.1:80"),
        ),
    ];
    let mut results = Vec::new();
    for (name, probe) in floods {
        let line = format!(
            "i=0; while [ $i -lt {FLOOD} ]; do '{}' probe \"{probe}\" > /dev/null 2>&1; i=$((i+1)); done; echo $i",
            attacker.program
        );
        let flooded = shell(attacker.sandbox, &line, FLOOD_TIMEOUT).await?;
        attacker.setup.take_hits();
        let before = allowed_connections(broker)?;
        attacker.check_control().await?;
        let mut recorded = 0;
        for _ in 0..MAX_WAITS {
            recorded = allowed_connections(broker)? - before;
            if recorded > 0 {
                break;
            }
            tokio::time::sleep(WAIT).await;
        }
        let is_flood = flooded.stdout.text().trim() == FLOOD.to_string();
        results.push(result(
            AttackClass::Audit,
            name,
            is_flood && recorded > 0,
            format!("{FLOOD} denied requests, then {recorded} more records of an allowed name"),
        ));
    }
    Ok(results)
}

/// How many connections to the allowed name are in the audit log.
fn allowed_connections(broker: &BrokerTarget<'_>) -> Result<u64, EscapeError> {
    let records = AuditLog::read(&broker.audit_file())
        .map_err(|error| EscapeError::Setup(std::io::Error::other(error)))?;
    let host = name("allowed");
    let allowed = records.iter().filter(|record| {
        record.verdict == AuditVerdict::Allowed
            && record.port.is_some()
            && record.host.as_ref() == Some(&host)
    });
    Ok(allowed.map(|record| record.count).sum())
}

/// A sandbox whose gateway has ended reaches nothing, until it is opened again. Closes it.
async fn end_the_gateway(
    provider: &dyn Provider,
    spec: &SandboxSpec,
    setup: &AttackSetup,
    id: &str,
    program: String,
) -> Result<Vec<AttackResult>, EscapeError> {
    let mut results = Vec::new();
    if let Some(alone) = provider.attach(id).await? {
        let attacker = Attacker {
            sandbox: alone.as_ref(),
            program: program.clone(),
            setup,
        };
        // Its connections end a moment later.
        for _ in 0..MAX_WAITS {
            setup.take_hits();
            if attacker.check_control().await.is_err() {
                break;
            }
            tokio::time::sleep(WAIT).await;
        }
        setup.take_hits();
        for (name, probe) in outward_probes(setup) {
            let seen = attacker.run(&probe).await?;
            tokio::time::sleep(TRANSIT_TIME).await;
            let holds = setup.take_hits().is_empty() && !is_answer(&seen);
            results.push(result(AttackClass::GatewayEnd, name, holds, seen.to_string()));
        }
    }
    let again = provider
        .reopen(spec)
        .await?
        .ok_or_else(|| SandboxError::gone(id))?;
    let control = async {
        again.start().await?;
        let attacker = Attacker {
            sandbox: again.as_ref(),
            program,
            setup,
        };
        attacker.check_control().await
    };
    let control = control.await;
    again.close().await?;
    let seen = control
        .as_ref()
        .map_or_else(ToString::to_string, |()| "it is reached".to_owned());
    results.push(result(
        AttackClass::GatewayEnd,
        "an allowed name is reached again through a new gateway",
        control.is_ok(),
        seen,
    ));
    Ok(results)
}

/// Ways out of a sandbox without a gateway.
fn outward_probes(setup: &AttackSetup) -> Vec<(&'static str, Probe)> {
    let get = |host| Probe::Get { host, at: None };
    let lookup = |label| Probe::Lookup {
        name: name(label),
        server: None,
    };
    let mut probes = vec![
        (
            "without a gateway an allowed name is not reached",
            get(setup.allowed_host()),
        ),
        ("without a gateway no name is resolved", lookup("allowed")),
        ("without a gateway no denied name is resolved", lookup("denied")),
    ];
    let canaries = setup.canaries().into_iter().filter_map(|canary| match canary {
        Canary::Tcp(address) => Some((
            "without a gateway the host is not reached",
            Probe::Connect(address),
        )),
        Canary::Udp(address) => Some((
            "without a gateway the host receives nothing",
            Probe::Send(address),
        )),
        Canary::Dns(_) => None,
    });
    probes.extend(canaries);
    probes
}

fn is_answer(seen: &ProbeResult) -> bool {
    matches!(
        seen,
        ProbeResult::Http { .. } | ProbeResult::Address(_) | ProbeResult::Answered | ProbeResult::Received(_)
    )
}

/// Interrupts the creation of sandboxes at several points. What is left must reach nothing, and can be removed.
pub(super) async fn interrupt_creation(
    target: &Target<'_>,
    setup: &AttackSetup,
) -> Result<Vec<AttackResult>, EscapeError> {
    let provider = target.provider;
    let start = Instant::now();
    let complete = provider.create(&neighbour_spec(target.spec)).await?;
    let whole = start.elapsed();
    complete.close().await?;
    let (mut hits, mut half_created, mut stuck) = (Vec::new(), 0, Vec::new());
    for point in 0..INTERRUPTIONS {
        let spec = neighbour_spec(target.spec);
        let limit = whole * point / INTERRUPTIONS;
        if let Ok(created) = tokio::time::timeout(limit, provider.create(&spec)).await {
            created?.close().await?;
            continue;
        }
        setup.take_hits();
        for left in left_of(provider, &spec.run).await? {
            // Most are not complete enough to run a command.
            if let Ok(Some(half)) = provider.attach(&left).await
                && let Ok(attacker) = Attacker::install(half.as_ref(), setup).await
            {
                let mut runs = false;
                for (_, probe) in outward_probes(setup) {
                    runs |= attacker.run(&probe).await.is_ok();
                }
                half_created += u32::from(runs);
            }
        }
        tokio::time::sleep(TRANSIT_TIME).await;
        hits.extend(setup.take_hits());
        if !remove_all(provider, &spec.run).await? {
            stuck.push(spec.run.to_string());
        }
    }
    let class = AttackClass::Interruption;
    let seen = format!(
        "{half_created} of {INTERRUPTIONS} could be entered, {} reached something",
        hits.len()
    );
    Ok(vec![
        result(
            class,
            "a sandbox that is not complete reaches nothing",
            hits.is_empty(),
            seen,
        ),
        result(
            class,
            "a sandbox that is not complete can be removed",
            stuck.is_empty(),
            format!("{} left", stuck.len()),
        ),
    ])
}

async fn left_of(provider: &dyn Provider, run: &RunId) -> Result<Vec<String>, SandboxError> {
    let listed = provider.list().await?.into_iter();
    let own = listed.filter(|listed| listed.run.as_ref() == Some(run));
    Ok(own.map(|listed| listed.id).collect())
}

/// Removes everything of a run. The engine may still be creating some of it.
async fn remove_all(provider: &dyn Provider, run: &RunId) -> Result<bool, SandboxError> {
    let mut quiet = 0;
    for _ in 0..MAX_WAITS {
        let left = left_of(provider, run).await?;
        quiet = if left.is_empty() { quiet + 1 } else { 0 };
        if quiet == QUIET {
            return Ok(true);
        }
        for id in left {
            // What cannot be removed yet is tried again.
            let _ = provider.remove(&id, RemovalScope::Any).await;
        }
        tokio::time::sleep(WAIT).await;
    }
    Ok(false)
}
