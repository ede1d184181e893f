//! Which agent works with which model profile.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Agent;

/// The agents of a run: one for every profile, and others for profiles that want another.
#[derive(Clone)]
pub struct Agents {
    usual: Arc<dyn Agent>,
    by_profile: BTreeMap<String, Arc<dyn Agent>>,
}

impl Agents {
    /// One agent, whatever the profile.
    #[must_use]
    pub fn one(agent: Arc<dyn Agent>) -> Self {
        Self {
            usual: agent,
            by_profile: BTreeMap::new(),
        }
    }

    /// The same, with another agent where the run goes on with this profile.
    #[must_use]
    pub fn with(mut self, profile: impl Into<String>, agent: Arc<dyn Agent>) -> Self {
        self.by_profile.insert(profile.into(), agent);
        self
    }

    /// The agent that works with a profile.
    #[must_use]
    pub fn of(&self, profile: &str) -> &Arc<dyn Agent> {
        self.by_profile.get(profile).unwrap_or(&self.usual)
    }
}
