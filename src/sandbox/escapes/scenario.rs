//! Attacks of several steps: with commands that the agent leaves behind, and with a second sandbox.

use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use super::setup::AttackSetup;
use super::{
    AttackClass, AttackResult, AttackVerdict, EscapeError, TIMEOUT, TRANSIT_TIME, Target, evidence, lifecycle,
};
use crate::exec::{Command, Discard, Exit, ExitStatus, blocking};
use crate::id::RunId;
use crate::network::probe::Canary;
use crate::sandbox::{Purpose, Sandbox, SandboxError, SandboxSpec};
use crate::text::visible;

/// Time for a background process to show that it still runs.
const BEAT: Duration = Duration::from_millis(500);
const MAX_BEATS: u64 = 1 << 16;

/// Runs all scenarios.
pub(super) async fn run_scenarios(
    target: &Target<'_>,
    setup: &AttackSetup,
) -> Result<Vec<AttackResult>, EscapeError> {
    let sandbox = target.sandbox;
    let mut results = vec![
        probe_from_the_host(setup).await?,
        show_control_characters(sandbox).await?,
        outlive_the_timeout(sandbox).await?,
    ];
    results.extend(evidence::forge(target).await?);
    results.extend(meet_a_neighbour(target).await?);
    results.extend(lifecycle::interrupt_creation(target, setup).await?);
    results.extend(lifecycle::attack_second_sandbox(target, setup).await?);
    Ok(results)
}

pub(super) fn result(class: AttackClass, name: &str, holds: bool, seen: impl Into<String>) -> AttackResult {
    AttackResult {
        name: name.to_owned(),
        class,
        verdict: if holds {
            AttackVerdict::Enforced
        } else {
            AttackVerdict::Open
        },
        seen: seen.into(),
        reason: class.defence().to_owned(),
    }
}

pub(super) async fn shell(
    sandbox: &dyn Sandbox,
    line: &str,
    timeout: Duration,
) -> Result<Exit, SandboxError> {
    let command = Command::shell(line).timeout(timeout);
    sandbox.exec(&command, &mut Discard).await
}

/// The host itself is an open sandbox: every canary must receive from it.
async fn probe_from_the_host(setup: &AttackSetup) -> Result<AttackResult, EscapeError> {
    let canaries = setup.canaries();
    let probed = canaries.clone();
    blocking(move || {
        for canary in probed {
            // What was not sent is not received.
            let _ = match canary {
                Canary::Tcp(address) => TcpStream::connect_timeout(&address, TIMEOUT).map(drop),
                Canary::Udp(_) | Canary::Dns(_) => send_datagram(&canary),
            };
        }
        Ok(())
    })
    .await
    .map_err(EscapeError::Setup)?;
    tokio::time::sleep(TRANSIT_TIME).await;
    let reached = setup.take_reached_canaries();
    let count = canaries
        .iter()
        .filter(|canary| reached.contains(&canary.address()))
        .count();
    let all = canaries.len();
    Ok(result(
        AttackClass::Proofs,
        "every listener receives from an open sandbox",
        count == all && all > 0,
        format!("{count} of {all} listeners received from the host"),
    ))
}

fn send_datagram(canary: &Canary) -> std::io::Result<()> {
    let address = canary.address();
    let socket = UdpSocket::bind((address.ip(), 0))?;
    socket.send_to(b"?", address).map(drop)
}

async fn show_control_characters(sandbox: &dyn Sandbox) -> Result<AttackResult, EscapeError> {
    let line = r"printf '\033]0;title\007\033[2J\015\342\200\256'";
    let printed = shell(sandbox, line, TIMEOUT).await?.stdout.text();
    let shown = visible(&printed);
    let holds = !printed.is_empty() && shown.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    Ok(result(
        AttackClass::Terminals,
        "control characters of a command are shown as text",
        holds,
        shown,
    ))
}

async fn outlive_the_timeout(sandbox: &dyn Sandbox) -> Result<AttackResult, EscapeError> {
    let file = sandbox.root().join("escapes-beats");
    let line = format!(
        "( ( while sleep 0.1; do echo beat >> '{0}'; done ) > /dev/null 2>&1 & ); until [ -s '{0}' ]; do sleep 0.1; done; sleep 600",
        file.display()
    );
    let exit = shell(sandbox, &line, Duration::from_secs(3)).await?;
    sandbox.end_processes().await?;
    let before = sandbox.files().read(&file, MAX_BEATS).await?;
    tokio::time::sleep(BEAT).await;
    let after = sandbox.files().read(&file, MAX_BEATS).await?;
    Ok(result(
        AttackClass::Resources,
        "a background process does not outlive its command",
        exit.status == ExitStatus::TimedOut && before == after,
        format!("{}, then {} more bytes", exit.status, after.len() - before.len()),
    ))
}

/// The spec of another run that is equal otherwise.
pub(super) fn neighbour_spec(spec: &SandboxSpec) -> SandboxSpec {
    let run = RunId::random();
    SandboxSpec {
        purpose: Purpose {
            branch: format!("selftest/{run}"),
            task: format!("selftest {run}"),
            ..spec.purpose.clone()
        },
        run,
        ..spec.clone()
    }
}

/// Another run on the same host. Closing its sandbox must not touch this one.
async fn meet_a_neighbour(target: &Target<'_>) -> Result<[AttackResult; 2], EscapeError> {
    let sandbox = target.sandbox;
    let neighbour = target.provider.create(&neighbour_spec(target.spec)).await?;
    let file = neighbour.root().join("escapes-neighbour");
    let written = neighbour.files().write(&file, b"secret", 0o644).await;
    let line = format!("cat '{}' /proc/*/root'{0}'", file.display());
    let read = shell(sandbox, &line, TIMEOUT).await;
    neighbour.close().await?;
    written?;
    let read = read?;
    let alive = shell(sandbox, "echo alive", TIMEOUT).await?;
    Ok([
        result(
            AttackClass::Neighbours,
            "files of another run are absent",
            !read.stdout.text().contains("secret"),
            read.status.to_string(),
        ),
        result(
            AttackClass::Neighbours,
            "closing another run's sandbox leaves this one",
            alive.stdout.text() == "alive\n",
            alive.status.to_string(),
        ),
    ])
}
