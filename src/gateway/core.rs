//! What all connections of one sandbox share.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::audit::Protocol;
use super::dial::{self, DialError};
use super::dns::Lookup;
use super::guard::AddressGuard;
use super::http::Onward;
use super::injection::CredentialInjector;
use super::inspect::Inspection;
use super::limits::Limits;
use super::permit::{Generation, Notary, Permit, Subject};
use super::phantom::Phantom;
use super::resolve::Resolver;
use super::seats::{Seat, Seats};
use super::stream::{Buffered, ByteStream};
use crate::network::probe::{Beacon, BeaconMatch};
use crate::network::{
    Denial, HostName, PolicyRequest, PolicyVerdict, RequestContent, RequestHost, SyntheticAddresses,
};

/// What all connections of one sandbox share.
pub(super) struct Core {
    pub(super) policies: watch::Receiver<Arc<Generation>>,
    pub(super) names: Mutex<SyntheticAddresses>,
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) guard: AddressGuard,
    pub(super) phantom: Option<Phantom>,
    pub(super) injection: Option<Arc<dyn CredentialInjector>>,
    pub(super) beacon: Option<Beacon>,
    pub(super) inspection: Option<Arc<Inspection>>,
    pub(super) notary: Notary,
    pub(super) limits: Limits,
    pub(super) seats: Arc<Seats>,
}

/// One connection that is being served.
pub(super) struct Session<'a, C> {
    pub(super) core: &'a Core,
    pub(super) seat: &'a Seat,
    pub(super) client: Buffered<C>,
}

/// How a TLS connection may pass.
pub(super) enum Passage {
    /// As it is.
    Tunnel(Box<Permit>),
    /// Opened, request by request.
    Inspected(Arc<Inspection>),
}

impl Core {
    /// Asks the policy about a request. What is denied is written down.
    pub(super) fn admit(&self, protocol: Protocol, request: PolicyRequest) -> Result<Permit, Denial> {
        if let Some(denial) = self.tunnels_an_injected_host(&request) {
            self.notary.denied(Subject::request(protocol, &request), &denial);
            return Err(denial);
        }
        Permit::ask(&self.policies, &self.notary, protocol, request)
    }

    /// Asks the policy about a TLS connection of which the name is known. What is denied is written down.
    pub(super) fn admit_tls(&self, name: &HostName, port: u16) -> Result<Passage, Denial> {
        let request = PolicyRequest::opaque(RequestHost::Name(name.clone()), port);
        if !self.inspects(&request.host, port) {
            return self
                .admit(Protocol::Tls, request)
                .map(Box::new)
                .map(Passage::Tunnel);
        }
        let verdict = self.policies.borrow().policy.judge(&request);
        let denial = match (verdict, &self.inspection) {
            (
                PolicyVerdict::Allowed(_) | PolicyVerdict::Denied(Denial::NotInspected(_)),
                Some(inspection),
            ) => {
                return Ok(Passage::Inspected(inspection.clone()));
            }
            (PolicyVerdict::Allowed(_), None) => {
                Denial::Invalid("the host is to be inspected, and there is no inspection")
            }
            (PolicyVerdict::Denied(denial), _) => denial,
        };
        self.notary
            .denied(Subject::request(Protocol::Tls, &request), &denial);
        Err(denial)
    }

    /// Whether TLS to this host is opened.
    pub(super) fn inspects(&self, host: &RequestHost, port: u16) -> bool {
        let policy = &self.policies.borrow().policy;
        host.name().is_some_and(|name| policy.inspects(name, port))
    }

    /// What the policy says about a request, written down nowhere.
    pub(super) fn judge(&self, request: &PolicyRequest) -> PolicyVerdict {
        match self.tunnels_an_injected_host(request) {
            Some(denial) => PolicyVerdict::Denied(denial),
            None => self.policies.borrow().policy.judge(request),
        }
    }

    /// Connects to the host of a permit.
    pub(super) async fn dial(&self, permit: &Permit) -> Result<TcpStream, DialError> {
        dial::dial(self.resolver.as_ref(), &self.guard, self.limits.connect, permit).await
    }

    /// Opens a connection for HTTP requests to the host of a permit: the host itself, or whoever adds its credential.
    pub(super) async fn open(
        &self,
        permit: &Permit,
        onward: &Onward,
    ) -> Result<Box<dyn ByteStream>, DialError> {
        let injection = self.injection.as_ref().zip(permit.request.host.name());
        if let Some((injection, name)) = injection.filter(|(injection, name)| injection.injects(name)) {
            let unreachable = |source: io::Error| DialError::Unreachable {
                host: name.to_string(),
                source,
            };
            return injection.open(name).await.map_err(unreachable);
        }
        let stream = self.dial(permit).await?;
        match onward {
            Onward::Plain => Ok(Box::new(stream)),
            Onward::Encrypted(inspection, name) => {
                let encrypting = timeout(self.limits.connect, inspection.encrypt(name, stream));
                let encrypted = encrypting
                    .await
                    .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                let untrusted = |source: io::Error| DialError::Untrusted {
                    host: name.to_string(),
                    source,
                };
                Ok(Box::new(encrypted.map_err(untrusted)?))
            }
        }
    }

    /// What the sandbox is told of a name.
    pub(super) fn look_up(&self, name: &HostName) -> Lookup {
        // What is asked to try the sandbox out is nobody's business.
        match self.beacon.as_ref().map(|beacon| beacon.compare(name)) {
            None | Some(BeaconMatch::Other) => {}
            Some(BeaconMatch::Exact) => return self.address_of(name),
            Some(BeaconMatch::Below) => return Lookup::Unknown,
        }
        match self.policies.borrow().policy.judge_name(name) {
            PolicyVerdict::Denied(denial) => {
                self.notary.denied(Subject::lookup(name), &denial);
                Lookup::Unknown
            }
            PolicyVerdict::Allowed(line) => {
                let mut names = self.lock_names();
                if !names.contains(name) {
                    self.notary.looked_up(name, &line);
                }
                names.address_of(name).map_or(Lookup::Unavailable, Lookup::At)
            }
        }
    }

    fn address_of(&self, name: &HostName) -> Lookup {
        self.lock_names()
            .address_of(name)
            .map_or(Lookup::Unavailable, Lookup::At)
    }

    /// What the gateway says of itself, to whoever asks for it by its own name.
    pub(super) fn beacon_at(&self, host: &RequestHost) -> Option<&str> {
        let beacon = self.beacon.as_ref()?;
        (host.name()?.as_str() == beacon.name).then_some(beacon.nonce.as_str())
    }

    /// Where a host is, as seen from the gateway's own name.
    pub(super) fn place_of(&self, host: &RequestHost) -> BeaconMatch {
        match self.beacon.as_ref().zip(host.name()) {
            Some((beacon, name)) => beacon.compare(name),
            None => BeaconMatch::Other,
        }
    }

    /// The host that a connection to this address is meant for.
    pub(super) fn host_at(&self, address: IpAddr) -> RequestHost {
        let name = match address {
            IpAddr::V4(address) => self.lock_names().name_of(address).cloned(),
            IpAddr::V6(_) => None,
        };
        name.map_or(RequestHost::Address(address), RequestHost::Name)
    }

    fn lock_names(&self) -> MutexGuard<'_, SyntheticAddresses> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tunnels_an_injected_host(&self, request: &PolicyRequest) -> Option<Denial> {
        let (injection, name) = self.injection.as_ref().zip(request.host.name())?;
        let tunnelled = request.content == RequestContent::Opaque && injection.injects(name);
        tunnelled.then(|| Denial::Injected(name.clone()))
    }
}
