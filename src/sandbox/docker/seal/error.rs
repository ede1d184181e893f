//! Why the network of a sandbox is not sealed.

use std::io;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use super::super::super::error::RESUME;
use super::super::super::{SandboxError, SandboxErrorKind};
use super::super::engine_error_kind;
use crate::engine::EngineError;
use crate::gateway::{GatewayError, InspectionError};
use crate::network::probe::ProbeFailure;

/// Why the network of a sandbox is not sealed, or why that cannot be verified. No command of the agent runs then.
#[derive(Debug, Error)]
pub enum SealError {
    /// There is no guest program to run in a holder.
    #[error("no holder can run: {0}")]
    NoGuest(&'static str),
    /// Containers run on another kernel than ralph, in a VM such as that of Docker Desktop or on another host, and the
    /// configuration demands that sockets are handed over.
    #[error(
        "the containers of this engine run on another kernel (in a virtual machine or on another host), which cannot hand \
         sockets to ralph as sandbox.docker.seal = \"handed\" demands"
    )]
    OtherKernel,
    /// The engine failed.
    #[error("the container engine failed for its holder")]
    Engine(#[from] EngineError),
    /// The holder runs but its socket cannot be reached: engine and ralph do not share a kernel.
    #[error("cannot connect to the socket of its holder")]
    HolderUnreachable(#[source] io::Error),
    /// The connection to the holder broke.
    #[error("lost the connection to its holder")]
    Connection(#[source] io::Error),
    /// The holder reported an error.
    #[error("its holder failed: {0}")]
    Failed(String),
    /// A process of the sandbox listens where the gateway has to.
    #[error("its holder {0}")]
    PortTaken(String),
    /// The holder does not run any more.
    #[error("its holder has ended")]
    HolderEnded,
    /// The holder sees the processes of others: the PID mode of its container is `host`, or names another container.
    #[error("its holder shares the processes of others (PID mode `{0}`), so nothing was started in it")]
    SharedProcesses(String),
    /// The rules in the kernel are not those of the seal.
    #[error("the rules in the kernel differ from the seal:\n{0}")]
    Different(String),
    /// The policy names more ports than a holder can pass on.
    #[error("the policy needs {0} listeners, but a sandbox can have at most 253")]
    TooManyPorts(usize),
    /// The gateway cannot use a listener.
    #[error("cannot start the gateway")]
    Gateway(#[source] GatewayError),
    /// The gateway cannot listen at the address that the sandbox connects to.
    #[error("the gateway cannot listen at {address}, the address of the host in the network of the sandbox")]
    Listen {
        /// The address of the host, as the sandbox sees it.
        address: IpAddr,
        /// Why.
        source: io::Error,
    },
    /// TLS cannot be inspected.
    #[error("cannot inspect TLS")]
    Inspection(#[from] InspectionError),
    /// The certificates that the sandbox must trust cannot be written.
    #[error("cannot write the certificates for TLS inspection")]
    Trust(#[source] io::Error),
    /// No probe could run inside.
    #[error("cannot run probes in the sandbox: {0}")]
    NotProbed(String),
    /// The guest, which has to probe the network from inside, cannot run with this OCI runtime.
    #[error(
        "the runtime `{0}` (sandbox.docker.runtime) cannot run the guest, which has to probe the network from inside"
    )]
    NoGuestInRuntime(String),
    /// No listener outside could receive a probe.
    #[error("cannot verify from outside that nothing leaves the sandbox")]
    NoCanaries(#[source] io::Error),
    /// A probe did not see what it must see.
    #[error(transparent)]
    Probe(#[from] ProbeFailure),
    /// A listener that the sandbox may reach did not receive a probe from inside, so that silence elsewhere proves nothing.
    #[error(
        "a probe from the sandbox to the host at {0} did not arrive, so the probes that must not arrive prove nothing"
    )]
    NotReceived(SocketAddr),
    /// A listener on the host received a probe from inside.
    #[error("the sandbox reached the host at {0}")]
    Escaped(SocketAddr),
}

impl SealError {
    /// The error that a holder reported.
    pub(super) fn reported(text: String) -> Self {
        if text.starts_with("cannot listen at ") {
            Self::PortTaken(text)
        } else {
            Self::Failed(text)
        }
    }

    /// The error of the sandbox whose network is not sealed.
    pub(in crate::sandbox) fn into_sandbox_error(self, sandbox: &str) -> SandboxError {
        let message = format!("the network of the sandbox `{sandbox}` is not sealed");
        SandboxError::new(self.kind(), message)
            .with_hint(self.hint())
            .with_cause(self)
    }

    fn kind(&self) -> SandboxErrorKind {
        match self {
            Self::Engine(source) => engine_error_kind(source),
            Self::HolderEnded | Self::Connection(_) | Self::NotProbed(_) => SandboxErrorKind::Lost,
            _ => SandboxErrorKind::Failed,
        }
    }

    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Engine(source) => source.hint(),
            Self::Inspection(source) => source.hint(),
            Self::Trust(_) => None,
            Self::HolderEnded | Self::Connection(_) => Some(RESUME),
            Self::OtherKernel => Some("set sandbox.docker.seal = \"auto\""),
            Self::NoGuest(_) => Some(
                "use an engine on the host itself or another provider, or set sandbox.network.policy = \"deny\"",
            ),
            Self::HolderUnreachable(_) => Some(
                "the engine seems to be on another host or in a VM: set sandbox.docker.seal = \"relayed\"",
            ),
            Self::NoCanaries(_) | Self::NotReceived(_) => Some(
                "ralph listens at the addresses of this host to verify that no sandbox reaches them, and a firewall may \
                 block that; `ralph selftest` tries it again",
            ),
            Self::NoGuestInRuntime(_) => Some(
                "use a newer version of that runtime, or none: it must execute programs that are not readable (mode 0111), \
                 join the network of another container, and apply the seccomp profile of a container",
            ),
            Self::TooManyPorts(_) => Some("use fewer ports in sandbox.network.allowed"),
            Self::Listen { .. } => Some(
                "that address must belong to this host; if it does not, the network of the VM is not that of Softnet",
            ),
            Self::PortTaken(_) => Some(
                "a process in the sandbox listens there, perhaps one that an earlier session left running: remove the sandbox \
                 with `ralph sandbox rm`, then `ralph resume` creates a new one from the last checkpoint of the run",
            ),
            Self::Failed(_) => Some(
                "the kernel of the engine needs nf_tables or ip_tables, and containers need the capability NET_ADMIN; \
                 see `docker logs` of the container whose name ends in `-net`",
            ),
            Self::SharedProcesses(_) => Some(
                "let the engine give each container processes of its own (`pidns` in containers.conf of podman), and remove the \
                 sandbox with `ralph sandbox rm`",
            ),
            Self::Different(_)
            | Self::NotProbed(_)
            | Self::Probe(_)
            | Self::Escaped(_)
            | Self::Gateway(_) => Some(
                "no command ran in this sandbox; remove it with `ralph sandbox rm`. If it happens again, something on this \
                 host changes its network: please report it",
            ),
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "cannot listen at 127.0.0.1:3128: Address already in use (os error 98)",
        "a process in the sandbox listens there"
    )]
    #[case(
        "cannot set the firewall (V4): Operation not permitted (os error 1)",
        "nf_tables"
    )]
    fn the_hint_is_about_what_the_holder_reported(#[case] text: &str, #[case] hint: &str) {
        let error = SealError::reported(text.to_owned());
        assert!(error.to_string().ends_with(text), "{error}");
        assert!(error.hint().unwrap().contains(hint), "{:?}", error.hint());
    }
}
