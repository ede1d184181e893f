//! The gateway of a VM: it listens at an address of the host that the VM reaches.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};

use super::super::docker::{SealError, proxy_variables};
use super::super::{Egress, SandboxSpec};
use crate::gateway::{Gateway, ListenerProtocol, Phantom};
use crate::network::PolicyMode;
use crate::network::probe::Beacon;

/// A gateway for one VM. It is closed when this is dropped.
pub(in crate::sandbox) struct VmGateway {
    _gateway: Gateway,
    /// The address at which it listens.
    pub(super) address: SocketAddr,
    /// Its name and its response there.
    pub(super) beacon: Beacon,
    phantom: Phantom,
    mode: PolicyMode,
}

impl VmGateway {
    /// Opens a gateway at this address of the host, which must be all that the VM can reach. It is a proxy that requires
    /// the run's phantom.
    pub(in crate::sandbox) fn open(address: IpAddr, spec: &SandboxSpec) -> Result<Self, SealError> {
        let failed = |source| SealError::Listen { address, source };
        let listener = TcpListener::bind((address, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let phantom = match &spec.egress.phantom {
            Some(phantom) => phantom.clone(),
            None => Phantom::random().map_err(|error| SealError::NotProbed(error.to_string()))?,
        };
        let egress = Egress {
            phantom: Some(phantom.clone()),
            ..spec.egress.clone()
        };
        let beacon = Beacon::random();
        let gateway = Gateway::new(egress.setup(&spec.network, beacon.clone()));
        gateway
            .open(ListenerProtocol::Proxy, listener)
            .map_err(SealError::Gateway)?;
        Ok(Self {
            _gateway: gateway,
            address,
            beacon,
            phantom,
            mode: spec.network.mode,
        })
    }

    /// Whether it refuses names that are not in the policy.
    pub(super) fn denies_unknown_names(&self) -> bool {
        match self.mode {
            PolicyMode::Deny | PolicyMode::Allowlist => true,
            PolicyMode::AllowAll | PolicyMode::Record => false,
        }
    }

    /// The proxy variables for programs in the VM.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        proxy_variables(&self.phantom, self.address)
    }
}
