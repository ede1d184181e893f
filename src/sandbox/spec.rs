//! What a sandbox is made from.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::RunId;
use crate::network::Policy;

/// What to make a sandbox from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSpec {
    /// The run it belongs to; its name is derived from it.
    pub run: RunId,
    /// The image, for providers that have images.
    pub image: Option<String>,
    /// Its limits.
    pub resources: Resources,
    /// Which names it may reach.
    pub network: Policy,
    /// Variables every command in it sees. Nothing confidential.
    pub env: BTreeMap<String, String>,
    /// How long a command that has ended may be kept waiting by a child that holds its streams.
    pub completion_grace: Duration,
}

impl SandboxSpec {
    /// A sandbox without limits that reaches every name, as `local` makes them. Other fields can be set afterwards.
    #[must_use]
    pub fn unrestricted(run: RunId) -> Self {
        Self {
            run,
            image: None,
            resources: Resources::default(),
            network: Policy::allow_all(),
            env: BTreeMap::new(),
            completion_grace: Duration::from_secs(5),
        }
    }
}

/// Limits of a sandbox; `None` leaves one to the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a processor.
    pub cpu_millis: Option<u32>,
    /// Bytes of disk.
    pub disk_bytes: Option<u64>,
}
