//! The right of one connection or request to pass, under the policy of its time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::audit::{AuditSink, Needs, Outcome, Protocol, Record};
use crate::clock::Clock;
use crate::network::{Denial, HostName, Policy, PolicyLine, PolicyRequest, PolicyVerdict};

/// A policy and its number. A later one has a higher number.
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) policy: Policy,
}

/// Writes down what was asked. Cheap to clone.
#[derive(Clone)]
pub(super) struct Notary {
    pub(super) sink: Arc<dyn AuditSink>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Notary {
    /// Writes down what was denied before anything passed.
    pub(super) fn denied(&self, subject: Subject, why: &Denial) {
        self.note(subject, Decision::against(why), &Traffic::default());
    }

    /// Writes down that a name was looked up for the first time.
    pub(super) fn looked_up(&self, name: &HostName, line: &PolicyLine) {
        self.note(Subject::lookup(name), Decision::by(line), &Traffic::default());
    }

    fn note(&self, subject: Subject, decision: Decision, traffic: &Traffic) {
        self.sink.record(Record {
            at: self.clock.now(),
            protocol: subject.protocol,
            host: subject.host,
            port: subject.port,
            verdict: decision.verdict,
            rule: decision.rule,
            needs: decision.needs,
            sent: traffic.sent.load(Ordering::Relaxed),
            received: traffic.received.load(Ordering::Relaxed),
        });
    }
}

/// What was decided, as it is written down.
struct Decision {
    verdict: Outcome,
    rule: String,
    needs: Option<Needs>,
}

impl Decision {
    fn by(line: &PolicyLine) -> Self {
        Self {
            verdict: Outcome::Allowed,
            rule: line.to_string(),
            needs: Needs::of_allowed(line),
        }
    }

    fn against(denial: &Denial) -> Self {
        Self {
            verdict: Outcome::Denied,
            rule: denial.to_string(),
            needs: Needs::of_denied(denial),
        }
    }
}

/// What something is about, as far as it is known.
pub(super) struct Subject {
    pub(super) protocol: Protocol,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
}

impl Subject {
    /// A request.
    pub(super) fn request(protocol: Protocol, request: &PolicyRequest) -> Self {
        Self {
            protocol,
            host: Some(request.host.to_string()),
            port: Some(request.port),
        }
    }

    /// A lookup.
    pub(super) fn lookup(name: &HostName) -> Self {
        Self {
            protocol: Protocol::Dns,
            host: Some(name.to_string()),
            port: None,
        }
    }
}

/// The right to pass. When it is dropped, what passed is written down.
pub(super) struct Permit {
    pub(super) request: PolicyRequest,
    pub(super) traffic: Traffic,
    protocol: Protocol,
    line: Arc<PolicyLine>,
    refused: Mutex<Option<Denial>>,
    generation: u64,
    policies: watch::Receiver<Arc<Generation>>,
    notary: Notary,
}

/// Bytes in both directions.
#[derive(Default)]
pub(super) struct Traffic {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
}

impl Permit {
    /// Asks the policy of now.
    pub(super) fn ask(
        policies: &watch::Receiver<Arc<Generation>>,
        notary: &Notary,
        protocol: Protocol,
        request: PolicyRequest,
    ) -> Result<Self, Denial> {
        let current = policies.borrow().clone();
        match current.policy.judge(&request) {
            PolicyVerdict::Allowed(line) => Ok(Self {
                request,
                traffic: Traffic::default(),
                protocol,
                line,
                refused: Mutex::default(),
                generation: current.number,
                policies: policies.clone(),
                notary: notary.clone(),
            }),
            PolicyVerdict::Denied(denial) => {
                notary.denied(Subject::request(protocol, &request), &denial);
                Err(denial)
            }
        }
    }

    /// Takes it back: the host turned out to be one that may not be reached.
    pub(super) fn refuse(&self, denial: Denial) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get_or_insert(denial);
    }

    /// Returns when a later policy does not allow what this one did.
    pub(super) async fn revoked(&self) {
        let mut policies = self.policies.clone();
        loop {
            let current = policies.borrow_and_update().clone();
            if current.number > self.generation
                && let PolicyVerdict::Denied(denial) = current.policy.judge(&self.request)
            {
                self.refuse(denial);
                return;
            }
            if policies.changed().await.is_err() {
                // The gateway is being closed, and everything with it.
                return;
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        let decision = match &refused {
            Some(denial) => Decision::against(denial),
            None => Decision::by(&self.line),
        };
        let subject = Subject::request(self.protocol, &self.request);
        self.notary.note(subject, decision, &self.traffic);
    }
}
