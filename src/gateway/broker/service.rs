//! Whom credentials are for.

use super::github::GitHub;
use super::upstream::Upstream;
use crate::network::HostName;

/// Whom a credential is for.
pub enum Service {
    /// A model.
    Model(Upstream),
    /// One repository.
    Repository(GitHub),
}

impl Service {
    /// The name that sandboxes use for it.
    #[must_use]
    pub fn host(&self) -> &HostName {
        match self {
            Self::Model(upstream) => &upstream.host,
            Self::Repository(github) => github.host(),
        }
    }
}

impl From<Upstream> for Service {
    fn from(upstream: Upstream) -> Self {
        Self::Model(upstream)
    }
}

impl From<GitHub> for Service {
    fn from(github: GitHub) -> Self {
        Self::Repository(github)
    }
}
