//! Sandboxes: a [`Provider`] creates them, a [`Sandbox`] is a live one.
//!
//! ```no_run
//! use ralph::exec::{Command, Discard};
//! use ralph::sandbox::local::{LocalOptions, LocalProvider};
//! use ralph::{Provider, RunId, SandboxSpec};
//!
//! # async fn example() -> Result<(), ralph::sandbox::SandboxError> {
//! let provider = LocalProvider::new(LocalOptions {
//!     base: "/tmp/sandboxes".into(),
//!     path: "/usr/bin:/bin".to_owned(),
//!     passthrough: Default::default(),
//! });
//! let sandbox = provider.create(&SandboxSpec::unrestricted(RunId::random())).await?;
//! let exit = sandbox.exec(&Command::new("git").arg("--version"), &mut Discard).await?;
//! assert!(exit.success());
//! sandbox.close().await?;
//! # Ok(())
//! # }
//! ```

mod canary;
pub mod daytona;
pub mod docker;
pub mod docker_sandbox;
mod error;
#[cfg(feature = "escapes")]
pub mod escapes;
mod evidence_space;
mod files;
mod fingerprint;
mod guest_file;
mod host_policy;
mod image_records;
mod lifecycle;
mod listing;
pub mod local;
mod name;
mod owner;
mod provider_images;
mod sandbox_dir;
mod scripted_files;
pub mod selftest;
pub mod session;
mod session_slot;
mod shell;
mod spec;
pub mod tart;
pub mod vm;
mod workspace_provider;

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::Serialize;

use crate::exec::{Command, Exit, OutputSink};
use crate::network::{Policy, PolicyMode};
use crate::usage::Usd;

pub use error::{SandboxError, SandboxErrorKind};
pub use evidence_space::EvidenceSpace;
pub use image_records::ImageRecords;
pub use listing::{RemovalScope, SandboxActivity, SandboxListing, SandboxOwnership};
pub use provider_images::{ProviderImage, ProviderImageFate, ProviderImages};
pub use spec::{DefaultLimits, Egress, Purpose, ReadOnlyMount, Resources, Reuse, SandboxSpec};

/// A shell script that ends all processes of the user except for its own ancestors.
const END_PROCESSES: &str = include_str!("end_processes.sh");

/// What a provider can enforce. It is checked before anything is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// How sandboxes are isolated from the host.
    pub isolation: Isolation,
    /// Which kind of network policy is enforced.
    pub network: NetworkEnforcement,
    /// Whether memory and processor limits are enforced.
    pub resources: Enforced,
    /// Whether a budget can end an agent in the middle of an iteration. Otherwise its usage is read from its transcript
    /// after the iteration.
    pub metering: Enforced,
    /// Whether a port inside can be opened in a browser.
    pub preview: bool,
    /// How a credential is used that stays outside the sandbox.
    pub credentials: CredentialRoute,
}

impl Capabilities {
    /// A warning for sandboxes without isolation, to show before anything runs in one.
    #[must_use]
    pub fn notice(&self) -> Option<&'static str> {
        match self.isolation {
            Isolation::DirectoryOnly => Some(
                "this sandbox has no isolation: its commands run as your user, with access to your files, processes and \
                 network",
            ),
            Isolation::Container | Isolation::Vm => None,
        }
    }

    /// Whether the policy of a live sandbox can be widened. Only ralph's own gateway can do that; other providers take a
    /// policy when they create a sandbox.
    #[must_use]
    pub fn widens_policy(&self) -> bool {
        self.network != NetworkEnforcement::Names || self.credentials == CredentialRoute::Gateway
    }

    /// A warning for sandboxes without metering, to show before an agent that costs money runs in one.
    #[must_use]
    pub fn spending_notice(&self) -> Option<&'static str> {
        match self.metering {
            Enforced::Yes => None,
            Enforced::No => Some(
                "the cost of the agent is only known after each iteration: a budget cannot end it in the middle of one",
            ),
        }
    }
}

/// How requests from a sandbox get a credential that the sandbox itself does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialRoute {
    /// The gateway forwards requests to the broker. There is a gateway only under a policy that restricts something.
    Gateway,
    /// The broker listens on the host's loopback interface, which the sandbox shares.
    Loopback,
    /// A proxy of the provider forwards `host.docker.internal` to the host's loopback interface, under a policy that
    /// restricts something.
    ProxiedLoopback,
    /// The provider stores credentials and adds them to requests.
    Provider,
    /// No route: an agent that needs a credential holds it inside the sandbox.
    None,
}

impl CredentialRoute {
    /// The route that is left under a policy.
    #[must_use]
    pub fn under(self, policy: &Policy) -> Self {
        let restricted = policy.mode != PolicyMode::AllowAll || policy.restricts();
        match self {
            Self::Gateway | Self::ProxiedLoopback if !restricted => Self::None,
            route => route,
        }
    }
}

/// How a sandbox is isolated from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Only by a directory of its own.
    DirectoryOnly,
    /// By a container.
    Container,
    /// By a VM.
    Vm,
}

/// Which kind of network policy a provider enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkEnforcement {
    /// None.
    Nothing,
    /// No network or an unrestricted one.
    AllOrNothing,
    /// Host names.
    Names,
}

/// Whether something is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforced {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// The approximate cost of a running sandbox per hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HourlyCost {
    /// The price.
    pub price: Usd,
    /// The resources that this price is for.
    pub resources: String,
}

/// Creates sandboxes of one kind. Implementations hold a client, never a running sandbox.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The name used in `sandbox.type`.
    fn name(&self) -> &'static str;

    /// What sandboxes of this kind can enforce.
    fn capabilities(&self) -> Capabilities;

    /// Why it cannot enforce this policy although it enforces this kind of policy; `None` if it can.
    fn objection(&self, _policy: &Policy) -> Option<String> {
        None
    }

    /// The cost of such a sandbox per hour; `None` if it is free.
    fn hourly_cost(&self, _spec: &SandboxSpec) -> Option<HourlyCost> {
        None
    }

    /// Fails if the provider cannot be used on this host. It is called before a run is created.
    async fn check(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    /// How the networks of its sandboxes reach the gateway on this host, and why in this way. `None` if there is only one
    /// way.
    async fn seal(&self) -> Result<Option<String>, SandboxError> {
        Ok(None)
    }

    /// Creates and starts a sandbox.
    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError>;

    /// Opens the sandbox that an earlier process of the same run created; `None` if it is gone.
    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError>;

    /// Creates a sandbox for evidence alone, from the same spec as that of the agent, which never runs in it. Removes one
    /// that an earlier process of the run left. `None` if the provider has no such sandboxes: then evidence is gathered
    /// in that of the agent.
    async fn create_for_evidence(
        &self,
        _spec: &SandboxSpec,
    ) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        Ok(None)
    }

    /// All sandboxes of this kind, of any run, except for `local` ones, which are a part of their run.
    async fn list(&self) -> Result<Vec<SandboxListing>, SandboxError> {
        Ok(Vec::new())
    }

    /// Opens a listed sandbox to run commands in it, without taking it over from its owner.
    async fn attach(&self, _id: &str) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        Ok(None)
    }

    /// Removes a listed sandbox and its workspace. Returns false if it does not exist, if `scope` excludes it, or if
    /// another process took it over meanwhile.
    async fn remove(&self, _id: &str, _scope: RemovalScope) -> Result<bool, SandboxError> {
        Ok(false)
    }

    /// Removes what belongs to no sandbox: containers that only probed the engine, for a process that was killed.
    async fn remove_abandoned_probes(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    /// The templates or snapshots that its sandboxes start from; `None` if the provider itself keeps none.
    fn images(&self) -> Option<&dyn ProviderImages> {
        None
    }
}

/// One live sandbox. Dropping it without [`Sandbox::close`] leaves it to the orphan sweep (or to a resume).
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Its name, for messages.
    fn id(&self) -> &str;

    /// The absolute path inside of the directory that belongs to the run. It contains the clone.
    fn root(&self) -> &Path;

    /// The digest of the image it was created from. `None` if the provider does not know it.
    fn image_digest(&self) -> Option<String> {
        None
    }

    /// Its files.
    fn files(&self) -> &dyn SandboxFiles;

    /// Runs a command to its end. Each line of output is passed to `output` immediately.
    ///
    /// A failing command is an `Exit`, not an error. Without a `cwd` it starts in [`Sandbox::root`].
    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError>;

    /// Like [`Sandbox::exec`], but bypasses the warm session, so that processes of the agent cannot influence the
    /// result. Evidence is gathered this way. A sandbox without a warm session uses `exec` for both.
    async fn exec_trusted(
        &self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, SandboxError> {
        self.exec(command, output).await
    }

    /// Makes fresh directories for one evidence run, with the variables that lead to them. It is called when no process
    /// of the agent runs, and ends with [`Sandbox::end_evidence`].
    async fn evidence_space(&self) -> Result<EvidenceSpace, SandboxError> {
        EvidenceSpace::create(self.root(), self.files()).await
    }

    /// Removes the directories of the evidence run, and gives the agent's own back. Does nothing without an evidence run.
    async fn end_evidence(&self) -> Result<(), SandboxError> {
        self.files().remove(&EvidenceSpace::dir(self.root())).await
    }

    /// Verifies the isolation again. It is called before each iteration; after an error no command may run.
    async fn verify(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    /// Warnings for the user since the last call.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ends all processes that were started in the sandbox, and their children.
    async fn end_processes(&self) -> Result<(), SandboxError>;

    /// Starts it after [`Sandbox::stop`]. Does nothing if it runs.
    async fn start(&self) -> Result<(), SandboxError>;

    /// Ends its processes and keeps its files. Commands fail until it is started again. Does nothing if it is stopped.
    async fn stop(&self) -> Result<(), SandboxError>;

    /// A URL by which a person's browser reaches a port inside. `None` if the provider has no such URLs.
    async fn preview(&self, _port: u16) -> Result<Option<String>, SandboxError> {
        Ok(None)
    }

    /// Removes it. Does nothing if it is gone.
    async fn close(&self) -> Result<(), SandboxError>;
}

/// The files of one sandbox. Paths are absolute inside the sandbox, or relative to [`Sandbox::root`].
///
/// No path leads out of the root, neither through `..` nor through a symlink that the agent created.
#[async_trait]
pub trait SandboxFiles: Send + Sync {
    /// Reads a file. Fails if it is longer than `limit` bytes.
    async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, SandboxError>;

    /// Replaces a file atomically, with these permission bits. Creates missing parent directories.
    async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), SandboxError>;

    /// Appends to a file. Creates it with mode 644 if it does not exist.
    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), SandboxError>;

    /// The entries of a directory, sorted by name.
    async fn list(&self, path: &Path) -> Result<Vec<DirEntry>, SandboxError>;

    /// Creates a directory and its parents, if they do not exist.
    async fn mkdir(&self, path: &Path) -> Result<(), SandboxError>;

    /// Removes a file or a directory with its content, if it exists.
    async fn remove(&self, path: &Path) -> Result<(), SandboxError>;

    /// Copies a file from the host into the sandbox.
    async fn upload(&self, from: &Path, to: &Path) -> Result<(), SandboxError>;

    /// Copies a file from the sandbox to the host. Fails if it is longer than `limit` bytes.
    async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), SandboxError>;
}

/// One entry of a directory in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without the directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// The size in bytes.
    pub size: u64,
    /// The permission bits.
    pub mode: u32,
    /// The modification time.
    pub mod_time: jiff::Timestamp,
}

/// The path of the clone inside a sandbox.
#[must_use]
pub fn clone_dir(sandbox: &dyn Sandbox) -> PathBuf {
    sandbox.root().join("work")
}

/// Fails if the provider cannot enforce a policy.
pub fn check_policy(provider: &dyn Provider, policy: &Policy) -> Result<(), SandboxError> {
    let reason = match (provider.capabilities().network, policy.mode) {
        (NetworkEnforcement::Names, _) => match provider.objection(policy) {
            Some(reason) => return Err(unenforceable(provider, reason)),
            None => return Ok(()),
        },
        (NetworkEnforcement::AllOrNothing, PolicyMode::Deny) => return Ok(()),
        (_, PolicyMode::AllowAll) if !policy.restricts() => return Ok(()),
        (_, PolicyMode::Record) => "it does not see which hosts are used, so nothing can be recorded",
        (NetworkEnforcement::Nothing, _) => "its commands can reach everything that the host can reach",
        (NetworkEnforcement::AllOrNothing, _) => "it can only allow or deny the whole network",
    };
    Err(unenforceable(provider, reason.to_owned()))
}

fn unenforceable(provider: &dyn Provider, reason: String) -> SandboxError {
    SandboxError::unsupported(provider.name(), "enforce the network policy", reason)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::local::{LocalOptions, LocalProvider};
    use super::tart::{self, TartOptions};
    use super::vm::VmOptions;
    use super::*;
    use crate::exec::Host;
    use crate::network::{HostPattern, PolicyRule};

    fn local() -> LocalProvider {
        LocalProvider::new(LocalOptions {
            base: "/nowhere".into(),
            path: "/usr/bin:/bin".to_owned(),
            passthrough: BTreeMap::new(),
        })
    }

    #[rstest]
    #[case::nothing_asked(Policy::allow_all(), true)]
    #[case::names_asked(Policy::allowlist([PolicyRule::parse("github.com").unwrap()]), false)]
    #[case::an_empty_list(Policy::allowlist([]), false)]
    #[case::all_denied(Policy::deny(), false)]
    #[case::one_denied(Policy::allow_all().denying([PolicyRule::parse("github.com").unwrap()]), false)]
    #[case::all_recorded(Policy::record(), false)]
    fn local_rejects_every_restricting_policy(#[case] policy: Policy, #[case] taken: bool) {
        match check_policy(&local(), &policy) {
            Ok(()) => assert!(taken, "{policy:?} was taken"),
            Err(error) => {
                assert_eq!(error.kind(), SandboxErrorKind::Unsupported);
                assert!(!taken && error.to_string().contains("`local`"), "{error}");
            }
        }
    }

    #[test]
    fn tart_rejects_tls_inspection() {
        let provider = tart::provider(TartOptions {
            vm: VmOptions {
                base: "/nowhere".into(),
                guest_dir: "/nowhere".into(),
                host: Host::new(BTreeMap::new()),
                host_name: "test".to_owned(),
            },
            dependencies: String::new(),
            project: "/nowhere".into(),
            boot_timeout: TartOptions::BOOT_TIMEOUT,
        });
        let names = Policy::allowlist([PolicyRule::parse("github.com").unwrap()]);
        assert!(check_policy(&provider, &names).is_ok());
        let opened = names.inspecting([HostPattern::parse("github.com").unwrap()]);
        let refused = check_policy(&provider, &opened).unwrap_err();
        assert!(refused.to_string().contains("cannot inspect TLS"), "{refused}");
    }

    #[test]
    fn local_says_that_it_isolates_nothing() {
        let notice = local().capabilities().notice();
        assert!(notice.is_some_and(|text| text.contains("has no isolation")));
    }
}
