//! Why a sandbox's network is not sealed.

use std::io;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use super::super::super::canary::CanaryError;
use super::super::super::{SandboxError, SandboxErrorKind};
use crate::engine::EngineError;
use crate::gateway::{GatewayError, InspectionError};
use crate::network::probe::ProbeFailure;

/// Why a sandbox's network is not sealed, or cannot be shown to be. No command of an agent's runs then.
#[derive(Debug, Error)]
pub enum SealError {
    /// There is no guest that could hold it.
    #[error("there is nothing to hold it: {0}")]
    NoGuest(&'static str),
    /// The engine is Docker Desktop, whose containers run in a virtual machine.
    #[error(
        "Docker Desktop runs its containers in a virtual machine, whose sockets cannot be shared with this one"
    )]
    Desktop,
    /// The engine failed.
    #[error("the container engine failed its holder")]
    Engine(#[from] EngineError),
    /// The holder runs, and its socket cannot be reached: engine and ralph do not share a kernel.
    #[error("the socket of its holder cannot be reached from this machine")]
    OutOfReach(#[source] io::Error),
    /// The line to the holder broke.
    #[error("the line to its holder broke")]
    Line(#[source] io::Error),
    /// The holder could not do it.
    #[error("its holder says: {0}")]
    Failed(String),
    /// The holder is gone.
    #[error("its holder has ended")]
    HolderEnded,
    /// What is in force is not what should be.
    #[error("the kernel has something else in force:\n{0}")]
    Different(String),
    /// The policy names more ports than can be listened at.
    #[error("the policy needs {0} listeners, and a sandbox has 253 at most")]
    TooManyPorts(usize),
    /// The gateway cannot use a listener.
    #[error("the gateway cannot be opened")]
    Gateway(#[source] GatewayError),
    /// The gateway cannot listen where the sandbox would look for it.
    #[error("the gateway cannot listen at {address}, which its network leads to")]
    Listen {
        /// The address of this machine, as the sandbox sees it.
        address: IpAddr,
        /// Why.
        source: io::Error,
    },
    /// TLS cannot be inspected.
    #[error("its TLS cannot be inspected")]
    Inspection(#[from] InspectionError),
    /// The sandbox cannot be made to trust the inspection.
    #[error("what makes it trust the inspection cannot be written")]
    Trust(#[source] io::Error),
    /// Nothing can be tried from inside.
    #[error("nothing can be tried from inside: {0}")]
    Untried(String),
    /// Nothing outside would hear it.
    #[error("nothing can be shown from outside")]
    NoCanaries(#[from] CanaryError),
    /// A probe saw what must not be.
    #[error(transparent)]
    Probe(#[from] ProbeFailure),
    /// A listener of this machine's heard from inside the sandbox.
    #[error("the sandbox was heard outside, at {0}")]
    Heard(SocketAddr),
}

impl SealError {
    /// The error of the sandbox whose network is not sealed.
    pub(in crate::sandbox) fn into_sandbox_error(self, sandbox: &str) -> SandboxError {
        let hint = self.hint();
        SandboxError::new(
            self.kind(),
            format!("the network of the sandbox `{sandbox}` is not sealed"),
        )
        .with_cause(self)
        .with_hint(hint)
    }

    fn kind(&self) -> SandboxErrorKind {
        match self {
            Self::Engine(source) if source.is_unreachable() => SandboxErrorKind::Unreachable,
            Self::HolderEnded | Self::Line(_) | Self::Untried(_) => SandboxErrorKind::Lost,
            Self::Engine(_)
            | Self::NoGuest(_)
            | Self::Desktop
            | Self::OutOfReach(_)
            | Self::Failed(_)
            | Self::Different(_)
            | Self::TooManyPorts(_)
            | Self::Gateway(_)
            | Self::Listen { .. }
            | Self::Inspection(_)
            | Self::Trust(_)
            | Self::NoCanaries(_)
            | Self::Probe(_)
            | Self::Heard(_) => SandboxErrorKind::Failed,
        }
    }

    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Engine(source) => source.hint(),
            Self::Inspection(source) => source.hint(),
            Self::Trust(_) => None,
            Self::HolderEnded | Self::Line(_) => {
                Some("`ralph resume` makes a new sandbox from the run's last checkpoint")
            }
            Self::NoGuest(_) | Self::Desktop => Some(
                "use an engine on this machine itself, another `--type`, or sandbox.network.policy = \"deny\"",
            ),
            Self::OutOfReach(_) => Some(
                "the engine seems to be on another machine, or in a virtual one: use one on this machine itself, or \
                 another `--type`",
            ),
            Self::NoCanaries(_) => Some(
                "ralph listens at this machine's own addresses to show that no sandbox reaches them; a firewall may keep \
                 this machine from itself: `ralph selftest` tries it again",
            ),
            Self::TooManyPorts(_) => Some("name fewer ports in sandbox.network.allowed"),
            Self::Listen { .. } => Some(
                "that address must be one of this machine's; where it is not, the machine's network is not Softnet's own",
            ),
            Self::Failed(_) => Some(
                "the engine's kernel needs nf_tables or ip_tables, and containers the capability NET_ADMIN; `docker logs` \
                 of the container whose name ends in `-net` may say more",
            ),
            Self::Different(_) | Self::Untried(_) | Self::Probe(_) | Self::Heard(_) | Self::Gateway(_) => {
                Some(
                    "nothing ran in this sandbox; remove it with `ralph sandbox rm`, and if it happens again, something \
                 on this machine changes its network: please report what was seen",
                )
            }
        }
    }
}

/// For a policy that cannot be sealed, before there is a sandbox.
impl From<SealError> for SandboxError {
    fn from(error: SealError) -> Self {
        let (kind, hint) = (error.kind(), error.hint());
        Self::from_cause(kind, error).with_hint(hint)
    }
}
