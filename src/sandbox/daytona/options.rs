//! The options of the provider.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::network::HostName;
use crate::sandbox::ImageRecords;
use crate::secret::Secret;
use crate::usage::Usd;

/// The options of the provider.
#[derive(Clone, Debug)]
pub struct DaytonaOptions {
    /// The URL of Daytona's API.
    pub api_url: String,
    /// The API key. Without one, the provider is unavailable.
    pub key: Option<Secret>,
    /// The region of sandboxes. Daytona chooses one if `None`.
    pub target: Option<String>,
    /// The name of this host, as part of the owner of sandboxes.
    pub host_name: String,
    /// The data directory of ralph on this host. Processes that share it share the sandboxes of their runs, and lock them;
    /// others must not find them. Empty if there is only one.
    pub data_dir: PathBuf,
    /// The text of a Dockerfile that Daytona builds. Without one, sandboxes start from snapshots.
    pub dockerfile: Option<String>,
    /// Credentials that Daytona's vault keeps.
    pub secrets: Vec<DaytonaSecret>,
    /// The prices of resources.
    pub prices: DaytonaPrices,
    /// How long Daytona may send nothing in the middle of a response.
    pub read_timeout: Duration,
    /// Receives progress messages.
    pub progress: DaytonaProgress,
    /// Where snapshots that this project made are recorded. Without it, none counts as its own.
    pub records: Option<ImageRecords>,
    /// The time of signatures.
    pub clock: Arc<dyn Clock>,
}

impl DaytonaOptions {
    /// The default URL of Daytona's API.
    pub const API_URL: &str = "https://app.daytona.io/api";

    /// The default read timeout: longer than the longest script that ralph runs there.
    pub const READ_TIMEOUT: Duration = Duration::from_secs(90);

    /// The defaults, with this URL, key, host name and clock.
    #[must_use]
    pub fn new(
        api_url: impl Into<String>,
        key: Option<Secret>,
        host_name: impl Into<String>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            api_url: api_url.into(),
            key,
            target: None,
            host_name: host_name.into(),
            data_dir: PathBuf::new(),
            dockerfile: None,
            secrets: Vec::new(),
            prices: DaytonaPrices::default(),
            read_timeout: Self::READ_TIMEOUT,
            progress: DaytonaProgress::default(),
            records: None,
            clock,
        }
    }
}

/// Receives a message each time the state of a sandbox or snapshot changes. Creating a snapshot can take many minutes.
#[derive(Clone)]
pub struct DaytonaProgress(Arc<dyn Fn(&str) + Send + Sync>);

impl DaytonaProgress {
    /// Calls this function with each message.
    pub fn new(report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    pub(super) fn report(&self, text: &str) {
        (self.0)(text);
    }
}

impl Default for DaytonaProgress {
    /// Ignores all messages.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for DaytonaProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DaytonaProgress")
    }
}

/// A credential that the sandbox never contains: Daytona adds it to outgoing requests.
#[derive(Clone, Debug)]
pub struct DaytonaSecret {
    /// The variable that contains the placeholder.
    pub variable: String,
    /// The credential itself.
    pub value: Secret,
    /// The hosts that it is sent to.
    pub hosts: Vec<HostName>,
}

/// The prices of an hour of each resource. The default is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DaytonaPrices {
    /// One processor.
    pub cpu_hour: Usd,
    /// One gigabyte of memory.
    pub memory_gb_hour: Usd,
    /// One gigabyte of disk.
    pub disk_gb_hour: Usd,
}
