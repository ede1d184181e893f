//! The permission of one connection or request, and its audit record.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use super::audit::{AuditProtocol, AuditRecord, AuditSink};
use crate::network::{Denial, Policy, PolicyLine, PolicyRequest};

/// The permission of a connection or request. Dropping it writes the audit record.
pub(super) struct Permit {
    pub(super) request: PolicyRequest,
    /// Bytes that the sandbox sent.
    pub(super) sent: AtomicU64,
    /// Bytes that the sandbox received.
    pub(super) received: AtomicU64,
    pub(super) protocol: AuditProtocol,
    pub(super) line: Arc<PolicyLine>,
    pub(super) revoked: OnceLock<Denial>,
    pub(super) policies: watch::Receiver<Policy>,
    pub(super) audit: Arc<dyn AuditSink>,
}

impl Permit {
    /// Revokes the permission, for example because the host has a forbidden address.
    pub(super) fn revoke(&self, denial: Denial) {
        // The first reason counts.
        let _ = self.revoked.set(denial);
    }

    /// Returns when a changed policy denies the request, or the gateway is closed.
    pub(super) async fn revoked(&self) {
        let mut policies = self.policies.clone();
        loop {
            let verdict = policies.borrow_and_update().judge(&self.request);
            if let Err(denial) = verdict {
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
        let verdict = self.revoked.get().map_or(Ok(&self.line), Err);
        let PolicyRequest { host, port, .. } = &self.request;
        self.audit.record(AuditRecord {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            ..AuditRecord::new(self.protocol, Some(host.to_string()), Some(*port), verdict)
        });
    }
}
