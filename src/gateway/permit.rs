//! The permission of one connection or request, and its audit record.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use super::audit::{AuditProtocol, AuditRecord, AuditSink};
use super::dial::DialError;
use super::slots::ConnectionSlot;
use crate::network::{Denial, Policy, PolicyLine, PolicyRequest};
use crate::text::cut_middle;

/// The longest reason in a record, in characters. A server can lengthen it by the names in its certificate.
const LONGEST_REASON: usize = 300;

/// The permission of a connection or request. Dropping it writes the audit record.
pub(super) struct Permit {
    protocol: AuditProtocol,
    request: PolicyRequest,
    /// The policy line that allows the request.
    line: Arc<PolicyLine>,
    /// Bytes that the sandbox sent.
    sent: AtomicU64,
    /// Bytes that the sandbox received.
    received: AtomicU64,
    revoked: OnceLock<Denial>,
    /// Why there is no connection.
    failed: OnceLock<String>,
    policies: watch::Receiver<Policy>,
    audit: Arc<dyn AuditSink>,
}

impl Permit {
    /// The permission of a request by a policy line. It can be revoked by a later policy.
    pub(super) fn new(
        protocol: AuditProtocol,
        request: PolicyRequest,
        line: Arc<PolicyLine>,
        policies: watch::Receiver<Policy>,
        audit: Arc<dyn AuditSink>,
    ) -> Self {
        Self {
            protocol,
            request,
            line,
            sent: AtomicU64::default(),
            received: AtomicU64::default(),
            revoked: OnceLock::new(),
            failed: OnceLock::new(),
            policies,
            audit,
        }
    }

    /// What is allowed.
    pub(super) fn request(&self) -> &PolicyRequest {
        &self.request
    }

    /// Counts what the sandbox sends.
    pub(super) fn sent<'a>(&'a self, slot: &'a ConnectionSlot) -> TrafficCounter<'a> {
        let bytes = &self.sent;
        TrafficCounter { bytes, slot }
    }

    /// Counts what the sandbox receives.
    pub(super) fn received<'a>(&'a self, slot: &'a ConnectionSlot) -> TrafficCounter<'a> {
        let bytes = &self.received;
        TrafficCounter { bytes, slot }
    }

    /// Revokes the permission, for example because the host has a forbidden address.
    pub(super) fn revoke(&self, denial: Denial) {
        // The first reason counts.
        let _ = self.revoked.set(denial);
    }

    /// Notes why the host could not be connected to.
    pub(super) fn not_connected(&self, error: &DialError) {
        match error {
            DialError::Denied(denial) => self.revoke(denial.clone()),
            DialError::Failed(reason) => {
                let _ = self.failed.set(cut_middle(reason, LONGEST_REASON).into_owned());
            }
        }
    }

    /// Returns when a changed policy denies the request, or the gateway is closed.
    pub(super) async fn until_revoked(&self) {
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
            failed: self.failed.take(),
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            ..AuditRecord::new(self.protocol, Some(host.to_string()), Some(*port), verdict)
        });
    }
}

/// Counts the bytes in one direction, and records the activity of the connection.
#[derive(Clone, Copy)]
pub(super) struct TrafficCounter<'a> {
    bytes: &'a AtomicU64,
    slot: &'a ConnectionSlot,
}

impl TrafficCounter<'_> {
    /// Writes bytes at once, and counts them. TLS buffers what is not flushed.
    pub(super) async fn send(self, bytes: &[u8], to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        to.write_all(bytes).await?;
        to.flush().await?;
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.slot.touch();
        Ok(())
    }
}
