//! What the provider needs to know.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::network::HostName;
use crate::secret::Secret;
use crate::usage::Usd;

/// What the provider needs to know.
#[derive(Clone, Debug)]
pub struct DaytonaOptions {
    /// Where Daytona answers.
    pub api_url: String,
    /// The key, where there is one.
    pub key: Option<Secret>,
    /// The region sandboxes are made in; Daytona's choice when `None`.
    pub target: Option<String>,
    /// What this machine is called.
    pub machine: String,
    /// The text of a Dockerfile that Daytona builds for its sandboxes; without one they start from snapshots.
    pub dockerfile: Option<String>,
    /// Credentials that sandboxes use and never hold.
    pub secrets: Vec<DaytonaSecret>,
    /// What sandboxes cost.
    pub prices: DaytonaPrices,
    /// How long Daytona may be silent in the middle of a call.
    pub answer_within: Duration,
    /// Who is told what is waited for.
    pub waiting: Waiting,
}

impl DaytonaOptions {
    /// Where Daytona answers unless somebody says otherwise.
    pub const API_URL: &str = "https://app.daytona.io/api";

    /// How long it may be silent: longer than the longest script of ours runs there.
    pub const ANSWER_WITHIN: Duration = Duration::from_secs(90);

    /// What to know of a Daytona at this address, with this key; everything else as it usually is.
    #[must_use]
    pub fn new(api_url: impl Into<String>, key: Option<Secret>, machine: impl Into<String>) -> Self {
        Self {
            api_url: api_url.into(),
            key,
            target: None,
            machine: machine.into(),
            dockerfile: None,
            secrets: Vec::new(),
            prices: DaytonaPrices::default(),
            answer_within: Self::ANSWER_WITHIN,
            waiting: Waiting::default(),
        }
    }
}

/// Is told what is waited for, in words for a person, each time that changes: a snapshot can take many minutes.
#[derive(Clone)]
pub struct Waiting(Arc<dyn Fn(&str) + Send + Sync>);

impl Waiting {
    /// This function is told.
    pub fn told_to(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(super) fn tell(&self, text: &str) {
        (self.0)(text);
    }
}

impl Default for Waiting {
    /// Nobody is told.
    fn default() -> Self {
        Self::told_to(|_| {})
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

/// A credential that commands use and their sandbox never holds: Daytona puts it in on the way out.
#[derive(Clone, Debug)]
pub struct DaytonaSecret {
    /// The variable in which commands find what stands for it.
    pub variable: String,
    /// The credential itself.
    pub value: Secret,
    /// The only hosts that it is sent to.
    pub hosts: Vec<HostName>,
}

/// What an hour of a sandbox's parts costs. Without prices an hour costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DaytonaPrices {
    /// A processor.
    pub cpu_hour: Usd,
    /// A gigabyte of memory.
    pub memory_gb_hour: Usd,
    /// A gigabyte of disk.
    pub disk_gb_hour: Usd,
}
