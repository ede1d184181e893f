//! The permission of one connection or request, and its audit record.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::audit::{AuditProtocol, AuditRecord, AuditRemedy, AuditSink, AuditVerdict};
use crate::network::{Denial, HostName, Policy, PolicyLine, PolicyRequest, PolicyVerdict};

/// The policy in force, and its changes.
pub(super) type PolicyReceiver = watch::Receiver<Policy>;

/// Writes audit records. Cheap to clone.
#[derive(Clone)]
pub(super) struct AuditWriter(pub(super) Arc<dyn AuditSink>);

impl AuditWriter {
    /// Records a denial before any traffic.
    pub(super) fn denied(&self, subject: AuditSubject, denial: &Denial) {
        self.record(subject, &Err(denial.clone()), &TrafficCounter::default());
    }

    /// Records the first lookup of an allowed name.
    pub(super) fn looked_up(&self, name: &HostName, line: Arc<PolicyLine>) {
        self.record(AuditSubject::lookup(name), &Ok(line), &TrafficCounter::default());
    }

    fn record(
        &self,
        subject: AuditSubject,
        decision: &Result<Arc<PolicyLine>, Denial>,
        traffic: &TrafficCounter,
    ) {
        let (verdict, rule, needs) = match decision {
            Ok(line) => (
                AuditVerdict::Allowed,
                line.to_string(),
                AuditRemedy::for_allowed(line),
            ),
            Err(denial) => (
                AuditVerdict::Denied,
                denial.to_string(),
                AuditRemedy::for_denied(denial),
            ),
        };
        self.0.record(AuditRecord {
            protocol: subject.protocol,
            host: subject.host,
            port: subject.port,
            verdict,
            rule,
            needs,
            sent: traffic.sent.load(Ordering::Relaxed),
            received: traffic.received.load(Ordering::Relaxed),
        });
    }
}

/// What a record is about, as far as it is known.
pub(super) struct AuditSubject {
    protocol: AuditProtocol,
    host: Option<String>,
    port: Option<u16>,
}

impl AuditSubject {
    pub(super) fn new(protocol: AuditProtocol, host: Option<String>, port: Option<u16>) -> Self {
        Self { protocol, host, port }
    }

    pub(super) fn request(protocol: AuditProtocol, request: &PolicyRequest) -> Self {
        Self::new(protocol, Some(request.host.to_string()), Some(request.port))
    }

    pub(super) fn lookup(name: &HostName) -> Self {
        Self::new(AuditProtocol::Dns, Some(name.to_string()), None)
    }
}

/// The permission of a connection or request. Dropping it writes the audit record.
pub(super) struct Permit {
    pub(super) request: PolicyRequest,
    pub(super) traffic: TrafficCounter,
    protocol: AuditProtocol,
    line: Arc<PolicyLine>,
    revoked: Mutex<Option<Denial>>,
    policies: PolicyReceiver,
    audit: AuditWriter,
}

/// Bytes in both directions.
#[derive(Default)]
pub(super) struct TrafficCounter {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
}

impl Permit {
    /// Asks the policy in force. A denial is recorded.
    pub(super) fn request(
        policies: &PolicyReceiver,
        audit: &AuditWriter,
        protocol: AuditProtocol,
        request: PolicyRequest,
    ) -> Result<Self, Denial> {
        let verdict = policies.borrow().judge(&request);
        match verdict {
            PolicyVerdict::Allowed(line) => Ok(Self {
                request,
                traffic: TrafficCounter::default(),
                protocol,
                line,
                revoked: Mutex::default(),
                policies: policies.clone(),
                audit: audit.clone(),
            }),
            PolicyVerdict::Denied(denial) => {
                audit.denied(AuditSubject::request(protocol, &request), &denial);
                Err(denial)
            }
        }
    }

    /// Revokes the permission, for example because the host has a forbidden address.
    pub(super) fn revoke(&self, denial: Denial) {
        let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        revoked.get_or_insert(denial);
    }

    /// Returns when a changed policy denies the request, or the gateway is closed.
    pub(super) async fn revoked(&self) {
        let mut policies = self.policies.clone();
        loop {
            let verdict = policies.borrow_and_update().judge(&self.request);
            if let PolicyVerdict::Denied(denial) = verdict {
                self.revoke(denial);
                return;
            }
            if policies.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let decision = revoked.map_or_else(|| Ok(self.line.clone()), Err);
        let subject = AuditSubject::request(self.protocol, &self.request);
        self.audit.record(subject, &decision, &self.traffic);
    }
}
