//! The steps that start a sandbox on a sealed network.

use std::fmt;

/// The steps that start a sandbox on a sealed network, in order. No command of the agent runs before the last step.
///
/// After each step, a `tracing` event is emitted whose field `step` is the name of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SealStep {
    /// The container of the holder was created.
    HolderCreated,
    /// The holder runs.
    HolderStarted,
    /// Ralph is connected to the holder.
    HolderReached,
    /// The firewall of the network is set up, and every address belongs to the holder.
    WallsRaised,
    /// Ralph has the listening sockets of the holder.
    ListenersHandedOver,
    /// The gateway serves these sockets.
    GatewayOpened,
    /// The container of the sandbox was created. This happens while the network is set up, so it may come earlier.
    SandboxCreated,
    /// The sandbox runs on the network of the holder.
    SandboxStarted,
    /// The warm session with its guest is open.
    SessionOpened,
    /// The rules in the kernel are those of the seal.
    KernelAsked,
    /// All probes from inside succeeded.
    Proved,
}

impl SealStep {
    /// All steps.
    pub const ALL: [Self; 11] = [
        Self::HolderCreated,
        Self::HolderStarted,
        Self::HolderReached,
        Self::WallsRaised,
        Self::ListenersHandedOver,
        Self::GatewayOpened,
        Self::SandboxCreated,
        Self::SandboxStarted,
        Self::SessionOpened,
        Self::KernelAsked,
        Self::Proved,
    ];

    /// Emits the event of this step, for the network of this holder.
    pub(in super::super) fn report(self, holder: &str) {
        tracing::debug!(step = %self, holder, "completed a step towards a sealed network");
    }
}

impl fmt::Display for SealStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HolderCreated => "holder-created",
            Self::HolderStarted => "holder-started",
            Self::HolderReached => "holder-reached",
            Self::WallsRaised => "walls-raised",
            Self::ListenersHandedOver => "listeners-handed-over",
            Self::GatewayOpened => "gateway-opened",
            Self::SandboxCreated => "sandbox-created",
            Self::SandboxStarted => "sandbox-started",
            Self::SessionOpened => "session-opened",
            Self::KernelAsked => "kernel-asked",
            Self::Proved => "proved",
        })
    }
}
