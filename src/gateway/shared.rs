//! The state that all connections of one sandbox share.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::timeout;

use super::GatewaySetup;
use super::audit::{AuditProtocol, AuditRecord};
use super::dial::DialError;
use super::dns::DnsLookup;
use super::injection::CredentialInjector;
use super::inspect::Inspection;
use super::permit::Permit;
use super::slots::{ConnectionSlot, ConnectionSlots};
use super::stream::{Buffered, ByteStream, ClientStream};
use crate::network::probe::BeaconMatch;
use crate::network::{
    Denial, HostName, Policy, PolicyRequest, PolicyVerdict, RequestContent, RequestHost, SyntheticAddresses,
};

/// The state that all connections of one sandbox share.
pub(super) struct GatewayCore {
    /// The settings. Its policy is the first one; `policies` has the one in force.
    pub(super) setup: GatewaySetup,
    pub(super) policies: watch::Receiver<Policy>,
    pub(super) names: Mutex<SyntheticAddresses>,
    pub(super) slots: Arc<ConnectionSlots>,
}

/// One connection that is being served.
pub(super) struct ServedConnection<'a, C = Box<dyn ClientStream>> {
    pub(super) core: &'a GatewayCore,
    pub(super) slot: &'a ConnectionSlot,
    pub(super) client: Buffered<C>,
}

impl GatewayCore {
    /// Asks the policy about a request. A denial is recorded.
    pub(super) fn admit(&self, protocol: AuditProtocol, request: PolicyRequest) -> Result<Permit, Denial> {
        match self.judge(&request) {
            Ok(line) => {
                let (policies, audit) = (self.policies.clone(), self.setup.audit.clone());
                Ok(Permit::new(protocol, request, line, policies, audit))
            }
            Err(denial) => {
                self.record_denial(protocol, Some(&request.host), Some(request.port), &denial);
                Err(denial)
            }
        }
    }

    /// The inspection of TLS connections for this request; `None` when they are tunnelled. A denial is recorded.
    pub(super) fn inspection_for(&self, request: &PolicyRequest) -> Result<Option<Arc<Inspection>>, Denial> {
        if !self.inspects(&request.host, request.port) {
            return Ok(None);
        }
        // Not `judge`: it forbids tunnels to a host whose credential the gateway adds. An inspected connection is no tunnel.
        let verdict = self.policies.borrow().judge(request);
        let denial = match (verdict, &self.setup.inspection) {
            (Ok(_) | Err(Denial::NotInspected(_)), Some(inspection)) => return Ok(Some(inspection.clone())),
            (Ok(_), None) => {
                Denial::Invalid("the policy inspects the host, but the gateway has no inspection")
            }
            (Err(denial), _) => denial,
        };
        self.record_denial(
            AuditProtocol::Tls,
            Some(&request.host),
            Some(request.port),
            &denial,
        );
        Err(denial)
    }

    /// Records a denial before any traffic.
    pub(super) fn record_denial(
        &self,
        protocol: AuditProtocol,
        host: Option<&RequestHost>,
        port: Option<u16>,
        denial: &Denial,
    ) {
        let host = host.map(ToString::to_string);
        let record = AuditRecord::new(protocol, host, port, Err(denial));
        self.setup.audit.record(record);
    }

    /// Whether TLS connections to this host are inspected.
    pub(super) fn inspects(&self, host: &RequestHost, port: u16) -> bool {
        let policy = self.policies.borrow();
        host.name().is_some_and(|name| policy.inspects(name, port))
    }

    /// The verdict of the policy, without an audit record. A host whose credential the gateway adds must not be tunnelled
    /// to.
    pub(super) fn judge(&self, request: &PolicyRequest) -> PolicyVerdict {
        if request.content == RequestContent::Opaque
            && let Some((_, name)) = self.injector_for(&request.host)
        {
            return Err(Denial::Injected(name.clone()));
        }
        if self.setup.audit.is_closed() {
            return Err(Denial::Invalid(
                "the network audit is full, and sandbox.network.on_full_audit closes the sandbox",
            ));
        }
        self.policies.borrow().judge(request)
    }

    /// What adds the credential of this host, and its name; `None` when the gateway has no credential for it.
    fn injector_for<'a>(
        &'a self,
        host: &'a RequestHost,
    ) -> Option<(&'a dyn CredentialInjector, &'a HostName)> {
        let (injector, name) = self.setup.injection.as_deref().zip(host.name())?;
        injector.injects(name).then_some((injector, name))
    }

    /// Opens a connection for HTTP requests: to the host, or to the broker when that adds the credential of the host.
    pub(super) async fn open(
        &self,
        permit: &Permit,
        inspection: Option<&Inspection>,
    ) -> Result<Box<dyn ByteStream>, DialError> {
        let host = &permit.request().host;
        if let Some((injector, name)) = self.injector_for(host) {
            let opened = injector.open(name).await;
            return opened
                .map_err(|error| DialError::unreachable(host, error))
                .inspect_err(|error| permit.not_connected(error));
        }
        let stream = self.dial(permit).await?;
        let Some(inspection) = inspection else {
            return Ok(Box::new(stream));
        };
        let connected = timeout(
            self.setup.limits.connect_timeout,
            inspection.connect(host, stream),
        )
        .await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let failed = |error| DialError::Failed(format!("the TLS handshake with {host} failed: {error}"));
        let connected = connected
            .map_err(failed)
            .inspect_err(|error| permit.not_connected(error));
        Ok(Box::new(connected?))
    }

    /// The result of a DNS lookup. A denied one is recorded, and an allowed name once.
    pub(super) fn look_up(&self, name: &HostName) -> DnsLookup {
        let verdict = match self.setup.beacon.as_ref().map(|beacon| beacon.compare(name)) {
            // Lookups of probes are not recorded.
            Some(BeaconMatch::Exact) => None,
            Some(BeaconMatch::Below) => return DnsLookup::Unknown,
            Some(BeaconMatch::Other) | None => Some(self.policies.borrow().judge_name(name)),
        };
        if let Some(Err(denial)) = &verdict {
            self.record_denial(AuditProtocol::Dns, Some(&name.clone().into()), None, denial);
            return DnsLookup::Unknown;
        }
        let (is_new, address) = {
            let mut names = self.lock_names();
            (!names.contains(name), names.address_of(name))
        };
        // The names are not locked any more: writing a record can take long.
        if let Some(Ok(line)) = &verdict
            && is_new
        {
            let host = Some(name.to_string());
            let record = AuditRecord::new(AuditProtocol::Dns, host, None, Ok(line));
            self.setup.audit.record(record);
        }
        address.map_or(DnsLookup::Unavailable, DnsLookup::At)
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
}
