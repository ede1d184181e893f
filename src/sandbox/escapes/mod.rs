//! Attacks on a sandbox from inside, made for it alone, and told at the receiving side.
//!
//! Each attack is carried out by the guest in a real sandbox. It has failed when what was seen inside is what must be
//! seen, *and* nobody outside heard of it: not the listeners on this machine's own addresses, not the server that an
//! allowed name leads to, not whoever resolves names. All of those were heard first, since silence alone shows nothing.

mod cases;
mod class;
mod machine;
mod stage;
mod wire;

use std::io;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

pub use self::class::Class;

use self::cases::{Case, GAPS, Gap, cases};
use self::stage::Stage;
use super::connect::check_policy;
use super::{Isolation, Provider, Sandbox, SandboxError, SandboxSpec};
use crate::exec::{Command, Discard};
use crate::guest;
use crate::network::probe::{Probe, Seen};

/// How long one attack may take; each probe has its own, shorter time.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long something on its way to a listener may take after the attack is over.
const ON_ITS_WAY: Duration = Duration::from_millis(20);
const PROGRAM: &str = "escapes";
const NOT_TRIED: &str = "not tried";

/// What came of every attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Matrix {
    /// The provider of the sandbox.
    pub provider: &'static str,
    /// The attacks.
    pub cases: Vec<Tried>,
}

impl Matrix {
    /// How many attacks came to this.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cases.iter().filter(|tried| tried.verdict == verdict).count()
    }
}

/// What came of one attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// What must hold.
    pub name: String,
    /// The kind of attack.
    pub class: Class,
    /// Whether it holds.
    pub verdict: Verdict,
    /// What was seen, inside and outside.
    pub seen: String,
    /// By what it holds, or why it does not.
    pub reason: String,
}

/// Whether something holds against an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It does.
    Enforced,
    /// It does not, or that could not be shown.
    Open,
    /// This provider does not hold it, and says so.
    NotEnforceable,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Enforced => "enforced",
            Self::Open => "open",
            Self::NotEnforceable => "not-enforceable",
        })
    }
}

/// Why nothing can be said about a sandbox.
#[derive(Debug, Error)]
pub enum EscapesError {
    /// The sandbox failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The listeners could not be set up.
    #[error("cannot set up what attacks are heard by")]
    Stage(#[source] io::Error),
    /// There is nothing that could attack.
    #[error("this ralph was built without its guest, which carries the attacks out")]
    NoGuest,
    /// What is allowed was not reached, so that what is not reached shows nothing.
    #[error("an allowed name is not reached from inside ({0}), so that nothing can be shown")]
    Control(String),
}

impl EscapesError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Sandbox(error) => error.hint(),
            Self::NoGuest => Some("build ralph where the static target of Rust is installed"),
            Self::Stage(_) | Self::Control(_) => None,
        }
    }
}

/// Makes a sandbox from this and attacks it. Its policy and egress are those of the attacks.
///
/// Where a provider cannot enforce a policy at all, nothing is tried: an attack would succeed on the machine itself.
pub async fn escapes(provider: &dyn Provider, spec: SandboxSpec) -> Result<Matrix, EscapesError> {
    let stage = Stage::set().await.map_err(EscapesError::Stage)?;
    let isolation = provider.capabilities().isolation;
    let policy = match isolation {
        Isolation::Machine => stage.names_alone(),
        Isolation::DirectoryOnly | Isolation::Container => stage.policy(),
    };
    let spec = SandboxSpec {
        network: policy.map_err(EscapesError::Stage)?,
        egress: stage.egress(),
        ..spec
    };
    let cases = cases(&stage);
    let attacked = async {
        check_policy(provider, &spec.network)?;
        match isolation {
            Isolation::Machine => machine::attack(provider, &spec, &stage).await,
            Isolation::DirectoryOnly | Isolation::Container => attack(provider, &spec, &stage, &cases).await,
        }
    };
    let tried = match attacked.await {
        Err(EscapesError::Sandbox(SandboxError::Unsupported { reason, .. })) => {
            cases.iter().map(|case| case.not_tried(&reason)).collect()
        }
        attacked => attacked?,
    };
    Ok(Matrix {
        provider: provider.name(),
        cases: tried,
    })
}

/// Attacks a sandbox that is made for it, and closes it whatever comes of it.
async fn attack(
    provider: &dyn Provider,
    spec: &SandboxSpec,
    stage: &Stage,
    cases: &[Case],
) -> Result<Vec<Tried>, EscapesError> {
    let sandbox = provider.create(spec).await?;
    let attacked = async {
        let attacker = Attacker::enter(sandbox.as_ref(), stage).await?;
        attacker.attack(cases).await
    };
    let attacked = attacked.await;
    sandbox.close().await?;
    let mut tried = attacked?;
    tried.extend(GAPS.iter().map(Gap::told));
    tried.push(leftovers(provider, spec).await?);
    Ok(tried)
}

/// Whether anything of the sandbox is left when it is closed.
async fn leftovers(provider: &dyn Provider, spec: &SandboxSpec) -> Result<Tried, SandboxError> {
    let listed = provider.list().await?;
    let left = listed
        .iter()
        .find(|listed| listed.run.as_ref() == Some(&spec.run));
    let (verdict, seen) = match left {
        None => (Verdict::Enforced, "nothing".to_owned()),
        Some(left) => (Verdict::Open, left.id.clone()),
    };
    Ok(Tried {
        name: "nothing is left when it is closed".to_owned(),
        class: Class::Leftovers,
        verdict,
        seen,
        reason: Class::Leftovers.held_by().to_owned(),
    })
}

/// The guest, inside, and who listens outside.
struct Attacker<'a> {
    sandbox: &'a dyn Sandbox,
    program: String,
    stage: &'a Stage,
}

impl<'a> Attacker<'a> {
    /// Puts the guest into the sandbox. A copy of its own, so that every provider's sandboxes can be attacked.
    async fn enter(sandbox: &'a dyn Sandbox, stage: &'a Stage) -> Result<Self, EscapesError> {
        let guest = guest::PROGRAM.ok_or(EscapesError::NoGuest)?;
        let path = sandbox.root().join(PROGRAM);
        sandbox.write(&path, guest, 0o755).await?;
        Ok(Self {
            sandbox,
            program: path.to_string_lossy().into_owned(),
            stage,
        })
    }

    async fn attack(&self, cases: &[Case]) -> Result<Vec<Tried>, EscapesError> {
        self.control().await?;
        let mut tried = Vec::new();
        for case in cases {
            let seen = self.carry_out(&case.check.probe).await?;
            tokio::time::sleep(ON_ITS_WAY).await;
            tried.push(case.judge(&seen, &self.stage.heard()));
        }
        // What held may have held because everything was closed meanwhile.
        self.control().await?;
        Ok(tried)
    }

    /// Shows that an allowed name is reached, which is heard outside.
    async fn control(&self) -> Result<(), EscapesError> {
        let seen = self.carry_out(&self.stage.allowed()).await?;
        let heard = self.stage.answered();
        if self.stage.is_answer(&seen) && heard {
            Ok(())
        } else {
            Err(EscapesError::Control(seen.to_string()))
        }
    }

    async fn carry_out(&self, probe: &Probe) -> Result<Seen, EscapesError> {
        let command = Command::new(&self.program).args(["probe".to_owned(), probe.to_string()]);
        let exit = self
            .sandbox
            .exec(&command.timeout(PATIENCE), &mut Discard)
            .await?;
        let printed = exit.stdout.text();
        Ok(match printed.lines().next() {
            Some(line) if exit.success() => Seen::parse(line),
            _ => Seen::Other(format!("{} {}", exit.status, exit.stderr.text().trim())),
        })
    }
}
