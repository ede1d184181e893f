//! Rules that people add to the policy while gateways are open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;

use crate::network::{Policy, PolicyRule};

/// Rules that people add to the policy of a run. Clones share them. Every gateway that has them applies a new rule at once.
#[derive(Clone, Debug, Default)]
pub struct AddedRules(Arc<Mutex<Added>>);

#[derive(Debug, Default)]
struct Added {
    rules: Vec<PolicyRule>,
    gateways: Vec<Weak<watch::Sender<Policy>>>,
}

impl AddedRules {
    /// Adds rules that allow. Adding one twice is harmless.
    pub fn add(&self, rules: impl IntoIterator<Item = PolicyRule>) {
        let mut added = self.lock();
        for rule in rules {
            if added.rules.iter().all(|known| known.line.text != rule.line.text) {
                added.rules.push(rule);
            }
        }
        let Added { rules, gateways } = &mut *added;
        gateways.retain(|gateway| {
            let gateway = gateway.upgrade();
            if let Some(policies) = &gateway {
                policies.send_modify(|policy| *policy = widened(policy.clone(), rules));
            }
            gateway.is_some()
        });
    }

    /// A policy with the rules that were added so far.
    #[must_use]
    pub fn widen(&self, policy: Policy) -> Policy {
        widened(policy, &self.lock().rules)
    }

    /// Applies the rules to the policy of a gateway, now and whenever one is added.
    pub(super) fn follow(&self, policies: &Arc<watch::Sender<Policy>>) {
        let mut added = self.lock();
        policies.send_modify(|policy| *policy = widened(policy.clone(), &added.rules));
        added.gateways.push(Arc::downgrade(policies));
    }

    fn lock(&self) -> MutexGuard<'_, Added> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn widened(policy: Policy, rules: &[PolicyRule]) -> Policy {
    let missing: Vec<PolicyRule> = rules
        .iter()
        .filter(|rule| !policy.allowed.contains(rule))
        .cloned()
        .collect();
    policy.allowing(missing)
}
