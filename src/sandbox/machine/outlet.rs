//! The gateway of a machine: on an address of this one that the machine reaches, and nobody else is served.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener};

use super::super::docker::{SealError, proxy_variables};
use super::super::{Egress, SandboxSpec};
use crate::gateway::{Door, Gateway, Phantom};
use crate::network::PolicyMode;
use crate::network::probe::Beacon;

/// A gateway that works for as long as this is kept.
pub(in crate::sandbox) struct Outlet {
    _gateway: Gateway,
    address: SocketAddr,
    beacon: Beacon,
    phantom: Phantom,
    mode: PolicyMode,
}

impl Outlet {
    /// Opens the gateway of a machine that reaches this address and nothing else. It listens there alone, as a proxy for
    /// whoever has the phantom.
    pub(in crate::sandbox) fn open(address: IpAddr, spec: &SandboxSpec) -> Result<Self, SealError> {
        let cannot = |source| SealError::Listen { address, source };
        let listener = TcpListener::bind((address, 0)).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let phantom = match &spec.egress.phantom {
            Some(phantom) => phantom.clone(),
            None => Phantom::random().map_err(|error| SealError::Untried(error.to_string()))?,
        };
        let egress = Egress {
            phantom: Some(phantom.clone()),
            ..spec.egress.clone()
        };
        let beacon = Beacon::random();
        let gateway = Gateway::new(egress.setup(&spec.network, beacon.clone()));
        gateway.open(Door::Proxy, listener).map_err(SealError::Gateway)?;
        Ok(Self {
            _gateway: gateway,
            address,
            beacon,
            phantom,
            mode: spec.network.mode(),
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> IpAddr {
        self.address.ip()
    }

    /// What it says of itself.
    pub(super) fn beacon(&self) -> &Beacon {
        &self.beacon
    }

    /// Whether a name that nobody listed is refused.
    pub(super) fn denies_unknown_names(&self) -> bool {
        match self.mode {
            PolicyMode::Deny | PolicyMode::Allowlist => true,
            PolicyMode::AllowAll | PolicyMode::Record => false,
        }
    }

    /// The variables by which programs find it.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        proxy_variables(&self.phantom, self.address)
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
