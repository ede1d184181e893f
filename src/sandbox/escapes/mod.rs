//! The escape suite: attacks on a sandbox from inside, observed from outside.
//!
//! The suite creates a sandbox and runs each attack in it. An attack has failed if the attacker saw what it should see,
//! *and* nothing reached the host: neither a canary on the host's addresses, nor the server of an allowed name, nor the
//! resolver of the gateway. Before and after the attacks a positive control shows that an allowed name is reached, because
//! silence alone proves nothing.

mod attack;
mod budgets;
mod calls;
mod class;
mod evidence;
mod lifecycle;
mod mutate;
mod payload;
mod scenario;
mod server;
mod setup;
mod vm;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

pub use self::class::AttackClass;

use self::attack::{Attack, attacks, known_gap};
use self::setup::AttackSetup;
use super::{Isolation, Provider, Sandbox, SandboxError, SandboxErrorKind, SandboxSpec, check_policy};
use crate::clock::Clock;
use crate::exec::{Command, Discard};
use crate::guest;
use crate::network::probe::{Probe, ProbeResult};

/// Limit for one attack. Each probe has its own, shorter timeout.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a packet may take to a listener after the attack is over.
const TRANSIT_TIME: Duration = Duration::from_millis(20);
/// The name of the guest's copy in the attacked sandbox.
const PROGRAM: &str = "escapes";
const NOT_TRIED: &str = "not tried";

/// The results of all attacks on one provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EscapeReport {
    /// The provider of the sandbox.
    pub provider: &'static str,
    /// The attacks.
    pub cases: Vec<AttackResult>,
}

impl EscapeReport {
    /// How many attacks got this verdict.
    #[must_use]
    pub fn count(&self, verdict: AttackVerdict) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }

    /// Replaces the results of a class.
    pub fn replace(&mut self, class: AttackClass, cases: Vec<AttackResult>) {
        self.cases.retain(|case| case.class != class);
        self.cases.extend(cases);
    }
}

/// The result of one attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AttackResult {
    /// The property that was attacked.
    pub name: String,
    /// The class of the attack.
    pub class: AttackClass,
    /// Whether the property holds.
    pub verdict: AttackVerdict,
    /// What the attacker observed.
    pub seen: String,
    /// Why the property holds or does not.
    pub reason: String,
}

impl AttackResult {
    /// For a class that only the tests of ralph attack.
    fn tried_by_tests(class: AttackClass) -> Self {
        let suite = class.suite();
        Self {
            verdict: AttackVerdict::NotTried,
            ..Self::not_tried(
                class.defence(),
                class,
                &format!("the tests of ralph attack this, in {suite}; this command does not"),
            )
        }
    }

    fn not_tried(name: &str, class: AttackClass, reason: &str) -> Self {
        Self {
            name: name.to_owned(),
            class,
            verdict: AttackVerdict::NotEnforceable,
            seen: NOT_TRIED.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// Whether a property holds against an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AttackVerdict {
    /// It holds.
    Enforced,
    /// It does not hold, or could not be shown to hold.
    Open,
    /// The provider cannot enforce it, and documents that.
    NotEnforceable,
    /// It was not attacked here.
    NotTried,
}

impl std::fmt::Display for AttackVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Enforced => "enforced",
            Self::Open => "open",
            Self::NotEnforceable => "not-enforceable",
            Self::NotTried => "not-tried",
        })
    }
}

/// Why the escape suite could not run.
#[derive(Debug, Error)]
pub enum EscapeError {
    /// The sandbox failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The listeners on the host could not be opened.
    #[error("cannot open the listeners that detect attacks")]
    Setup(#[source] io::Error),
    /// There is no program that could run the attacks.
    #[error("this ralph was built without the guest, which runs the attacks")]
    NoGuest,
    /// The positive control failed, so that failed attacks prove nothing.
    #[error("cannot reach an allowed name from inside the sandbox ({0})")]
    Control(String),
}

impl EscapeError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Sandbox(error) => error.hint(),
            Self::NoGuest => Some("build ralph on Linux with a static C library installed"),
            Self::Setup(_) | Self::Control(_) => None,
        }
    }
}

/// Creates a sandbox and attacks it. The policy and egress of the spec are replaced by those of the attacks. Variations of the
/// known attacks follow for as long as `variations` says, on containers only.
///
/// If the provider cannot enforce a policy at all, no attack runs: it would succeed on the host itself.
pub async fn escapes(
    provider: &dyn Provider,
    spec: SandboxSpec,
    clock: Arc<dyn Clock>,
    variations: Option<Duration>,
) -> Result<EscapeReport, EscapeError> {
    let setup = AttackSetup::open().await.map_err(EscapeError::Setup)?;
    let isolation = provider.capabilities().isolation;
    let spec = SandboxSpec {
        network: setup.policy(isolation).map_err(EscapeError::Setup)?,
        egress: setup.egress(),
        ..spec
    };
    let attacks = attacks(&setup);
    let results = async {
        check_policy(provider, &spec.network)?;
        let sandbox = provider.create(&spec).await?;
        let results = if isolation == Isolation::Vm {
            vm::attack(sandbox.as_ref(), &setup).await
        } else {
            let target = Target {
                provider,
                sandbox: sandbox.as_ref(),
                spec: &spec,
                clock,
            };
            attack_container(&target, &setup, &attacks, variations).await
        };
        let closed = sandbox.close().await;
        let mut results = results?;
        closed?;
        results.push(check_leftovers(provider, &spec).await?);
        Ok(results)
    };
    let mut cases = match results.await {
        Err(EscapeError::Sandbox(error)) if error.kind() == SandboxErrorKind::Unsupported => {
            let reason = error.to_string();
            attacks
                .iter()
                .map(|attack| AttackResult::not_tried(attack.name, attack.class, &reason))
                .collect()
        }
        results => results?,
    };
    let untried: Vec<AttackClass> = AttackClass::ALL
        .into_iter()
        .filter(|class| !cases.iter().any(|case| case.class == *class))
        .collect();
    cases.extend(untried.into_iter().map(AttackResult::tried_by_tests));
    Ok(EscapeReport {
        provider: provider.name(),
        cases,
    })
}

/// A sandbox that is attacked, and how to create another one.
struct Target<'a> {
    provider: &'a dyn Provider,
    sandbox: &'a dyn Sandbox,
    spec: &'a SandboxSpec,
    clock: Arc<dyn Clock>,
}

/// Runs all attacks in a sandbox with the host's operating system, through the guest.
async fn attack_container(
    target: &Target<'_>,
    setup: &AttackSetup,
    attacks: &[Attack<Probe>],
    variations: Option<Duration>,
) -> Result<Vec<AttackResult>, EscapeError> {
    let attacker = Attacker::install(target.sandbox, setup).await?;
    attacker.check_control().await?;
    let mut results = Vec::new();
    for attack in attacks {
        let seen = attacker.run(&attack.action).await?;
        tokio::time::sleep(TRANSIT_TIME).await;
        results.push(attack.judge(&seen, &setup.take_hits_of(attack.class)));
    }
    if let Some(duration) = variations {
        results.extend(mutate::run_mutations(&attacker, attacks, duration).await?);
    }
    // The attacks may have failed because the network stopped working.
    attacker.check_control().await?;
    results.extend(scenario::run_scenarios(target, setup).await?);
    results.push(known_gap());
    Ok(results)
}

/// Checks that nothing of the closed sandbox is left.
async fn check_leftovers(provider: &dyn Provider, spec: &SandboxSpec) -> Result<AttackResult, SandboxError> {
    let listed = provider.list().await?;
    let left = listed
        .iter()
        .find(|listed| listed.run.as_ref() == Some(&spec.run));
    let (verdict, seen) = match left {
        None => (AttackVerdict::Enforced, "nothing".to_owned()),
        Some(left) => (AttackVerdict::Open, left.id.clone()),
    };
    Ok(AttackResult {
        name: "closing the sandbox leaves nothing behind".to_owned(),
        class: AttackClass::Leftovers,
        verdict,
        seen,
        reason: AttackClass::Leftovers.defence().to_owned(),
    })
}

/// A copy of the guest inside the sandbox that runs the attacks.
struct Attacker<'a> {
    sandbox: &'a dyn Sandbox,
    program: String,
    setup: &'a AttackSetup,
}

impl<'a> Attacker<'a> {
    /// Copies the guest into the sandbox. The copy works with every provider, also those that put no guest there.
    async fn install(sandbox: &'a dyn Sandbox, setup: &'a AttackSetup) -> Result<Self, EscapeError> {
        let guest = guest::PROGRAM.ok_or(EscapeError::NoGuest)?;
        let path = sandbox.root().join(PROGRAM);
        sandbox.files().write(&path, guest, 0o755).await?;
        Ok(Self {
            sandbox,
            program: path.to_string_lossy().into_owned(),
            setup,
        })
    }

    /// The positive control: an allowed name is reached, and the host sees the request.
    async fn check_control(&self) -> Result<(), EscapeError> {
        let host = self.setup.allowed_host();
        let seen = self.run(&Probe::Get { host, at: None }).await?;
        let received = self.setup.take_server_hit();
        match &seen {
            ProbeResult::Http { status: 200, text } if text == self.setup.body() && received => Ok(()),
            _ => Err(EscapeError::Control(seen.to_string())),
        }
    }

    async fn run(&self, probe: &Probe) -> Result<ProbeResult, EscapeError> {
        let command = Command::new(&self.program).args(["probe".to_owned(), probe.to_string()]);
        let exit = self.sandbox.exec(&command.timeout(TIMEOUT), &mut Discard).await?;
        let printed = exit.stdout.text();
        Ok(match printed.lines().next() {
            Some(line) if exit.success() => ProbeResult::parse(line),
            _ => ProbeResult::Other(format!("{} {}", exit.status, exit.stderr.text().trim())),
        })
    }
}
