//! What a sandbox is made from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::gateway::audit::{AuditSink, NoAudit};
use crate::gateway::{
    AddressGuard, CredentialInjector, GatewaySetup, Phantom, Resolver, SystemResolver, TrustedRoots,
};
use crate::id::RunId;
use crate::network::Policy;
use crate::network::probe::Beacon;

/// What to make a sandbox from.
#[derive(Clone, Debug)]
pub struct SandboxSpec {
    /// The run it belongs to.
    pub run: RunId,
    /// What is done in it.
    pub purpose: Purpose,
    /// The image, for providers that have images.
    pub image: Option<String>,
    /// What of the host it sees besides its workspace. It can change none of it.
    pub mounts: Vec<ReadOnlyMount>,
    /// Its limits.
    pub resources: Resources,
    /// Which names it may reach.
    pub network: Policy,
    /// What its gateway works with, for providers that put it behind one.
    pub egress: Egress,
    /// Variables every command in it sees. Nothing confidential.
    pub env: BTreeMap<String, String>,
    /// How long a command that has ended may be kept waiting by a child that holds its streams.
    pub completion_grace: Duration,
    /// Whether it may be used again.
    pub reuse: Reuse,
}

impl SandboxSpec {
    /// How long a child that holds its streams is waited for, unless somebody says otherwise.
    pub const USUAL_GRACE: Duration = Duration::from_secs(5);

    /// A sandbox without limits that reaches every name, as `local` makes them. Other fields can be set afterwards.
    #[must_use]
    pub fn unrestricted(run: RunId) -> Self {
        Self {
            run,
            purpose: Purpose::default(),
            image: None,
            mounts: Vec::new(),
            resources: Resources::default(),
            network: Policy::allow_all(),
            egress: Egress::default(),
            env: BTreeMap::new(),
            completion_grace: Self::USUAL_GRACE,
            reuse: Reuse::Allowed,
        }
    }
}

/// What the gateway of a sandbox works with, beside the policy. None of it is part of the sandbox.
#[derive(Clone)]
pub struct Egress {
    /// Who resolves the names that are allowed.
    pub resolver: Arc<dyn Resolver>,
    /// Which addresses they may lead to.
    pub guard: AddressGuard,
    /// Where everything is written down that was asked for.
    pub audit: Arc<dyn AuditSink>,
    /// The credential of the explicit proxy; without one it serves nobody.
    pub phantom: Option<Phantom>,
    /// Whether commands are told of that proxy.
    pub proxy_variables: ProxyVariables,
    /// Who adds credentials, where somebody does.
    pub injection: Option<Arc<dyn CredentialInjector>>,
    /// Whom hosts are verified against whose TLS the policy has opened.
    pub roots: TrustedRoots,
}

/// Whether commands are told of the explicit proxy by the variables that are usual for it (`HTTP_PROXY` and the like).
/// Nothing needs them where every connection comes to the gateway anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyVariables {
    /// They are not.
    #[default]
    Unset,
    /// They are, with the run's phantom.
    Set,
}

impl Egress {
    /// The set-up of a gateway for this policy, which says of itself what this beacon has.
    pub(super) fn setup(&self, policy: &Policy, beacon: Beacon) -> GatewaySetup {
        GatewaySetup {
            resolver: self.resolver.clone(),
            guard: self.guard.clone(),
            phantom: self.phantom.clone(),
            injection: self.injection.clone(),
            beacon: Some(beacon),
            ..GatewaySetup::new(policy.clone(), self.audit.clone())
        }
    }
}

impl Default for Egress {
    fn default() -> Self {
        Self {
            resolver: Arc::new(SystemResolver),
            guard: AddressGuard::default(),
            audit: Arc::new(NoAudit),
            phantom: None,
            proxy_variables: ProxyVariables::default(),
            injection: None,
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

/// What is done in a sandbox: from it comes its name, and by it a later run of the same task finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purpose {
    /// The agent.
    pub agent: String,
    /// The branch it works on.
    pub branch: String,
    /// The task, as one of all repositories of this machine.
    pub task: String,
}

/// A file or directory of the host that a sandbox sees and cannot change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadOnlyMount {
    /// Where it is on the host.
    pub source: PathBuf,
    /// Where it is seen.
    pub target: PathBuf,
}

/// Whether a sandbox may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// By the iterations of its run, and by a later run of the same task.
    Allowed,
    /// Not even by the next iteration.
    Never,
}

/// Limits of a sandbox; `None` leaves one to the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a processor.
    pub cpu_millis: Option<u32>,
    /// Bytes of disk.
    pub disk_bytes: Option<u64>,
}
