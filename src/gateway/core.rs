//! The state that all connections of one sandbox share.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::timeout;

use super::GatewaySetup;
use super::audit::AuditProtocol;
use super::dial::DialError;
use super::dns::DnsLookup;
use super::http::UpstreamTransport;
use super::inspect::Inspection;
use super::permit::{AuditSubject, AuditWriter, Permit, PolicyReceiver};
use super::slots::{ConnectionSlot, ConnectionSlots};
use super::stream::{Buffered, ByteStream};
use crate::network::probe::BeaconMatch;
use crate::network::{
    Denial, HostName, PolicyRequest, PolicyVerdict, RequestContent, RequestHost, SyntheticAddresses,
};

/// The state that all connections of one sandbox share.
pub(super) struct GatewayCore {
    /// The settings. Its policy is the first one; `policies` has the one in force.
    pub(super) setup: GatewaySetup,
    pub(super) policies: PolicyReceiver,
    pub(super) names: Mutex<SyntheticAddresses>,
    pub(super) audit: AuditWriter,
    pub(super) slots: Arc<ConnectionSlots>,
}

/// One connection that is being served.
pub(super) struct GatewaySession<'a, C> {
    pub(super) core: &'a GatewayCore,
    pub(super) slot: &'a ConnectionSlot,
    pub(super) client: Buffered<C>,
}

/// How an allowed TLS connection is forwarded.
pub(super) enum TlsPassage {
    /// Unchanged.
    Tunnel(Box<Permit>),
    /// Decrypted, so that each request is judged.
    Inspected(Arc<Inspection>),
}

impl GatewayCore {
    /// Asks the policy about a request. A denial is recorded.
    pub(super) fn admit(&self, protocol: AuditProtocol, request: PolicyRequest) -> Result<Permit, Denial> {
        if let Some(denial) = self.deny_tunnel_with_credential(&request) {
            self.audit
                .denied(AuditSubject::request(protocol, &request), &denial);
            return Err(denial);
        }
        Permit::request(&self.policies, &self.audit, protocol, request)
    }

    /// Asks the policy about a TLS connection to this name. A denial is recorded.
    pub(super) fn admit_tls(&self, name: &HostName, port: u16) -> Result<TlsPassage, Denial> {
        let request = PolicyRequest::opaque(RequestHost::Name(name.clone()), port);
        if !self.inspects(&request.host, port) {
            let permit = self.admit(AuditProtocol::Tls, request)?;
            return Ok(TlsPassage::Tunnel(Box::new(permit)));
        }
        let verdict = self.policies.borrow().judge(&request);
        let denial = match (verdict, &self.setup.inspection) {
            (
                PolicyVerdict::Allowed(_) | PolicyVerdict::Denied(Denial::NotInspected(_)),
                Some(inspection),
            ) => {
                return Ok(TlsPassage::Inspected(inspection.clone()));
            }
            (PolicyVerdict::Allowed(_), None) => {
                Denial::Invalid("the policy inspects the host, but the gateway has no inspection")
            }
            (PolicyVerdict::Denied(denial), _) => denial,
        };
        self.audit
            .denied(AuditSubject::request(AuditProtocol::Tls, &request), &denial);
        Err(denial)
    }

    /// Whether TLS connections to this host are inspected.
    pub(super) fn inspects(&self, host: &RequestHost, port: u16) -> bool {
        let policy = self.policies.borrow();
        host.name().is_some_and(|name| policy.inspects(name, port))
    }

    /// The verdict of the policy, without an audit record.
    pub(super) fn judge(&self, request: &PolicyRequest) -> PolicyVerdict {
        match self.deny_tunnel_with_credential(request) {
            Some(denial) => PolicyVerdict::Denied(denial),
            None => self.policies.borrow().judge(request),
        }
    }

    /// Opens a connection for HTTP requests: to the host, or to the broker when that adds the credential of the host.
    pub(super) async fn open(
        &self,
        permit: &Permit,
        transport: &UpstreamTransport,
    ) -> Result<Box<dyn ByteStream>, DialError> {
        let injector = self.setup.injection.as_ref().zip(permit.request.host.name());
        if let Some((injector, name)) = injector.filter(|(injector, name)| injector.injects(name)) {
            let opened = injector.open(name).await;
            return opened.map_err(|source| DialError::Unreachable {
                host: name.to_string(),
                source,
            });
        }
        let stream = self.dial(permit).await?;
        match transport {
            UpstreamTransport::Plain => Ok(Box::new(stream)),
            UpstreamTransport::Tls(inspection, name) => {
                let connected = timeout(self.setup.limits.connect, inspection.connect(name, stream)).await;
                let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                let stream = connected.map_err(|source| DialError::Untrusted {
                    host: name.to_string(),
                    source,
                })?;
                Ok(Box::new(stream))
            }
        }
    }

    /// The result of a DNS lookup.
    pub(super) fn look_up(&self, name: &HostName) -> DnsLookup {
        // Lookups of probes are not recorded.
        match self.beacon_place(&RequestHost::Name(name.clone())) {
            BeaconMatch::Other => {}
            BeaconMatch::Exact => return self.address_of(name),
            BeaconMatch::Below => return DnsLookup::Unknown,
        }
        let verdict = self.policies.borrow().judge_name(name);
        match verdict {
            PolicyVerdict::Denied(denial) => {
                self.audit.denied(AuditSubject::lookup(name), &denial);
                DnsLookup::Unknown
            }
            PolicyVerdict::Allowed(line) => {
                let mut names = self.lock_names();
                if !names.contains(name) {
                    self.audit.looked_up(name, line);
                }
                names
                    .address_of(name)
                    .map_or(DnsLookup::Unavailable, DnsLookup::At)
            }
        }
    }

    fn address_of(&self, name: &HostName) -> DnsLookup {
        let address = self.lock_names().address_of(name);
        address.map_or(DnsLookup::Unavailable, DnsLookup::At)
    }

    /// The text of the beacon, when the host is the beacon.
    pub(super) fn beacon_at(&self, host: &RequestHost) -> Option<&str> {
        let beacon = self.setup.beacon.as_ref()?;
        (host.name()?.as_str() == beacon.name).then_some(beacon.nonce.as_str())
    }

    /// Whether a host is the beacon, or a name below it.
    pub(super) fn beacon_place(&self, host: &RequestHost) -> BeaconMatch {
        match self.setup.beacon.as_ref().zip(host.name()) {
            Some((beacon, name)) => beacon.compare(name),
            None => BeaconMatch::Other,
        }
    }

    /// The host that a synthetic address stands for.
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

    /// A host whose credential the gateway adds must not be tunnelled to.
    fn deny_tunnel_with_credential(&self, request: &PolicyRequest) -> Option<Denial> {
        let (injector, name) = self.setup.injection.as_ref().zip(request.host.name())?;
        let is_tunnel = request.content == RequestContent::Opaque && injector.injects(name);
        is_tunnel.then(|| Denial::Injected(name.clone()))
    }
}
