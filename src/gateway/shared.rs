//! The state that all connections of one sandbox share.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::GatewaySetup;
use super::audit::{AuditProtocol, AuditRecord};
use super::dial::DialError;
use super::dns::DnsLookup;
use super::inspect::Inspection;
use super::permit::Permit;
use super::slots::{ConnectionSlot, ConnectionSlots};
use super::stream::{Buffered, ByteStream};
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
pub(super) struct ServedConnection<'a, C = TcpStream> {
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
        if let Some((injector, name)) = self.setup.injection.as_ref().zip(request.host.name())
            && request.content == RequestContent::Opaque
            && injector.injects(name)
        {
            return Err(Denial::Injected(name.clone()));
        }
        self.policies.borrow().judge(request)
    }

    /// Opens a connection for HTTP requests: to the host, or to the broker when that adds the credential of the host.
    pub(super) async fn open(
        &self,
        permit: &Permit,
        inspection: Option<&Inspection>,
    ) -> Result<Box<dyn ByteStream>, DialError> {
        if let Some((injector, name)) = self.setup.injection.as_ref().zip(permit.request().host.name())
            && injector.injects(name)
        {
            let opened = injector.open(name).await;
            return opened.map_err(|_| DialError::unreachable(name));
        }
        let stream = self.dial(permit).await?;
        let Some(inspection) = inspection else {
            return Ok(Box::new(stream));
        };
        let host = &permit.request().host;
        let connected = timeout(
            self.setup.limits.connect_timeout,
            inspection.connect(host, stream),
        )
        .await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let failed = |error| DialError::Failed(format!("the TLS handshake with {host} failed: {error}"));
        Ok(Box::new(connected.map_err(failed)?))
    }

    /// The result of a DNS lookup.
    pub(super) fn look_up(&self, name: &HostName) -> DnsLookup {
        let mut names = self.lock_names();
        match self.setup.beacon.as_ref().map(|beacon| beacon.compare(name)) {
            // Lookups of probes are not recorded.
            Some(BeaconMatch::Exact) => {}
            Some(BeaconMatch::Below) => return DnsLookup::Unknown,
            Some(BeaconMatch::Other) | None => {
                let verdict = self.policies.borrow().judge_name(name);
                if verdict.is_err() || !names.contains(name) {
                    let host = Some(name.to_string());
                    let record = AuditRecord::new(AuditProtocol::Dns, host, None, verdict.as_ref());
                    self.setup.audit.record(record);
                }
                if verdict.is_err() {
                    return DnsLookup::Unknown;
                }
            }
        }
        names
            .address_of(name)
            .map_or(DnsLookup::Unavailable, DnsLookup::At)
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
