//! What a sandbox is created from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::engine::ContentArchive;
use crate::gateway::audit::{AuditSink, NoAudit};
use crate::gateway::{
    AddedRules, AddressGuard, CredentialInjector, GatewaySetup, HeaderSecret, Phantom, Resolver,
    SystemResolver, TrustedRoots,
};
use crate::id::RunId;
use crate::network::Policy;
use crate::network::probe::Beacon;

/// What a sandbox is created from.
#[derive(Clone, Debug)]
pub struct SandboxSpec {
    /// The run it belongs to.
    pub run: RunId,
    /// What it is used for.
    pub purpose: Purpose,
    /// The image, for providers that have images.
    pub image: Option<String>,
    /// The Dockerfile of the image, for providers that build images. `image` is then the name of what it describes.
    pub dockerfile: Option<String>,
    /// The files that the Dockerfile copies.
    pub build_files: Option<ContentArchive>,
    /// Host paths that it sees read-only, in addition to its workspace.
    pub mounts: Vec<ReadOnlyMount>,
    /// Its resource limits.
    pub resources: Resources,
    /// Which of them are defaults. A provider that cannot apply a default says so; any other limit it refuses.
    pub default_limits: DefaultLimits,
    /// Which hosts it may reach.
    pub network: Policy,
    /// The settings of its gateway, for providers that use one.
    pub egress: Egress,
    /// Variables of all its commands. Everything that may inspect the sandbox can read them.
    pub env: BTreeMap<String, String>,
    /// How long to wait after a command has ended for child processes that keep its streams open.
    pub completion_grace: Duration,
    /// Whether it may be reused.
    pub reuse: Reuse,
}

impl SandboxSpec {
    /// The default of `completion_grace`.
    pub const USUAL_GRACE: Duration = Duration::from_secs(5);

    /// A sandbox without limits and with an unrestricted network.
    #[must_use]
    pub fn unrestricted(run: RunId) -> Self {
        Self {
            run,
            purpose: Purpose::default(),
            image: None,
            dockerfile: None,
            build_files: None,
            mounts: Vec::new(),
            resources: Resources::default(),
            default_limits: DefaultLimits::default(),
            network: Policy::allow_all(),
            egress: Egress::default(),
            env: BTreeMap::new(),
            completion_grace: Self::USUAL_GRACE,
            reuse: Reuse::Allowed,
        }
    }
}

/// The settings of the gateway of a sandbox, except for the policy. They do not affect whether a sandbox is reused.
#[derive(Clone)]
pub struct Egress {
    /// Resolves allowed host names.
    pub resolver: Arc<dyn Resolver>,
    /// Which addresses they may resolve to.
    pub guard: AddressGuard,
    /// Rules that people add to the policy while the run works. Gateways apply them at once; a new port is open from the
    /// next start of the sandbox.
    pub added: AddedRules,
    /// Where requests are recorded.
    pub audit: Arc<dyn AuditSink>,
    /// The credential of the explicit proxy. Without one the proxy rejects all requests.
    pub phantom: Option<Phantom>,
    /// Whether commands get the variables of that proxy (`HTTP_PROXY` and the like). They are not needed in a sealed
    /// sandbox, where all connections lead to the gateway anyway.
    pub proxy_variables: bool,
    /// Adds credentials to requests.
    pub injection: Option<Arc<dyn CredentialInjector>>,
    /// Secrets that commands have placeholders of.
    pub secrets: Vec<HeaderSecret>,
    /// The certificate authorities that inspected hosts are verified against.
    pub roots: TrustedRoots,
}

impl Egress {
    /// The configuration of a gateway for this policy. The gateway serves the beacon.
    pub(super) fn setup(&self, policy: &Policy, beacon: Beacon) -> GatewaySetup {
        GatewaySetup {
            resolver: self.resolver.clone(),
            guard: self.guard.clone(),
            phantom: self.phantom.clone(),
            injection: self.injection.clone(),
            secrets: self.secrets.clone(),
            beacon: Some(beacon),
            added: self.added.clone(),
            ..GatewaySetup::new(policy.clone(), self.audit.clone())
        }
    }
}

impl Default for Egress {
    fn default() -> Self {
        Self {
            resolver: Arc::new(SystemResolver),
            guard: AddressGuard::default(),
            added: AddedRules::default(),
            audit: Arc::new(NoAudit),
            phantom: None,
            proxy_variables: false,
            injection: None,
            secrets: Vec::new(),
            roots: TrustedRoots::System,
        }
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress")
            .field("guard", &self.guard)
            .field("phantom", &self.phantom)
            .field("proxy_variables", &self.proxy_variables)
            .finish_non_exhaustive()
    }
}

/// What a sandbox is used for. Its name is derived from it, and a later run of the same task finds it by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purpose {
    /// The agent.
    pub agent: String,
    /// The branch it works on.
    pub branch: String,
    /// Identifies the task among all repositories of the host.
    pub task: String,
}

/// A file or directory of the host that a sandbox sees read-only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadOnlyMount {
    /// The path on the host.
    pub source: PathBuf,
    /// The path inside.
    pub target: PathBuf,
}

/// Whether a sandbox may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// By the iterations of its run, and by a later run of the same task.
    Allowed,
    /// Each iteration gets a new one.
    Never,
}

/// Resource limits of a sandbox. `None` is the default of the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a processor.
    pub cpu_millis: Option<u32>,
    /// Bytes of disk.
    pub disk_bytes: Option<u64>,
}

/// Which resource limits of a sandbox are defaults that the user did not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefaultLimits {
    /// That of memory.
    pub memory: bool,
    /// That of processors.
    pub processors: bool,
}
