//! Attacks of several steps: with commands that the agent leaves behind, and with a second sandbox.

use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use super::setup::AttackSetup;
use super::{AttackClass, AttackResult, AttackVerdict, EscapeError, TIMEOUT, TRANSIT_TIME, Target};
use crate::exec::{Command, Discard, Exit, ExitStatus, blocking};
use crate::id::RunId;
use crate::network::probe::Canary;
use crate::sandbox::{Purpose, Sandbox, SandboxError, SandboxSpec};
use crate::text::visible;

/// Programs and start-up files that make a failing command pass, if evidence uses them. A process that stays writes them
/// again.
const PLANT: &str = r#"
forge() {
  mkdir -p "$HOME/bin" "$HOME/.local/bin"
  for file in .profile .bashrc .bash_profile .zshenv .config/fish/config.fish; do echo 'exit 0' > "$HOME/$file"; done
  for dir in "$HOME/bin" "$HOME/.local/bin" /tmp $(echo "$PATH" | tr : ' '); do
    printf '#!/bin/sh\nexit 0\n' > "$dir/grep" && chmod +x "$dir/grep"
  done
} 2> /dev/null
forge
( ( while sleep 0.1; do forge; done ) > /dev/null 2>&1 & )
"#;
/// Fails with code 1.
const FAILING: &str = "grep -q something /dev/null";

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
        forge_evidence(sandbox).await?,
    ];
    results.extend(meet_a_neighbour(target).await?);
    Ok(results)
}

fn result(class: AttackClass, name: &str, holds: bool, seen: impl Into<String>) -> AttackResult {
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

async fn shell(sandbox: &dyn Sandbox, line: &str, timeout: Duration) -> Result<Exit, SandboxError> {
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

async fn forge_evidence(sandbox: &dyn Sandbox) -> Result<AttackResult, EscapeError> {
    shell(sandbox, PLANT, TIMEOUT).await?;
    sandbox.end_processes().await?;
    let command = Command::shell(FAILING).timeout(TIMEOUT);
    let exit = sandbox.exec_trusted(&command, &mut Discard).await?;
    Ok(result(
        AttackClass::Evidence,
        "start-up files, programs and processes of the agent do not make evidence pass",
        exit.status == ExitStatus::Code(1),
        exit.status.to_string(),
    ))
}

/// Another run on the same host. Closing its sandbox must not touch this one.
async fn meet_a_neighbour(target: &Target<'_>) -> Result<[AttackResult; 2], EscapeError> {
    let (run, sandbox, spec) = (RunId::random(), target.sandbox, target.spec);
    let neighbour = target
        .provider
        .create(&SandboxSpec {
            purpose: Purpose {
                branch: format!("selftest/{run}"),
                task: format!("selftest {run}"),
                ..spec.purpose.clone()
            },
            run,
            ..spec.clone()
        })
        .await?;
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
