//! The steps by which a sandbox comes to run on a sealed network.

use std::fmt;

/// The steps by which a sandbox comes to run on a sealed network, in their order. No command of an agent's runs before the
/// last is done.
///
/// Each is told, once it is done, as an event of `tracing` whose field `step` is the step's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SealStep {
    /// The holder's container was made.
    HolderCreated,
    /// It runs.
    HolderStarted,
    /// It is spoken with.
    HolderReached,
    /// Its network has a firewall, behind which every address is its own.
    WallsRaised,
    /// Its listeners are ralph's.
    ListenersHandedOver,
    /// The gateway answers at them.
    GatewayOpened,
    /// The sandbox's own container was made. Meanwhile the network is made ready: this may come at any time before the
    /// next.
    SandboxCreated,
    /// It runs, on the holder's network.
    SandboxStarted,
    /// The guest in it is spoken with.
    SessionOpened,
    /// The kernel has in force what it should.
    KernelAsked,
    /// Probes from inside have seen what they should.
    Proved,
}

impl SealStep {
    /// All of them.
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

    /// Tells that it is done, for the network of this holder.
    pub(in super::super) fn done(self, holder: &str) {
        tracing::debug!(step = %self, holder, "a step towards a sealed network");
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
