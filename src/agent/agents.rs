//! Which agent works with which model profile.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Agent;

/// The agents of a run: a default one, and others for individual model profiles.
#[derive(Clone)]
pub struct Agents {
    default: Arc<dyn Agent>,
    by_profile: BTreeMap<String, Arc<dyn Agent>>,
}

impl Agents {
    /// Uses one agent for every profile.
    #[must_use]
    pub fn new(default: Arc<dyn Agent>) -> Self {
        Self {
            default,
            by_profile: BTreeMap::new(),
        }
    }

    /// Uses another agent for this profile.
    #[must_use]
    pub fn with(mut self, profile: impl Into<String>, agent: Arc<dyn Agent>) -> Self {
        self.by_profile.insert(profile.into(), agent);
        self
    }

    /// The agent that works with a profile.
    #[must_use]
    pub fn for_profile(&self, profile: &str) -> &Arc<dyn Agent> {
        self.by_profile.get(profile).unwrap_or(&self.default)
    }
}
