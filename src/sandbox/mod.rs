//! Sandboxes: a [`Provider`] makes them, a [`Sandbox`] is one that lives.
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
pub mod connect;
pub mod daytona;
pub mod docker;
pub mod docker_sandbox;
mod error;
#[cfg(feature = "escapes")]
pub mod escapes;
mod files;
mod fingerprint;
mod guest;
mod life;
mod limits;
mod listed;
pub mod local;
mod name;
mod owner;
mod place;
mod reach;
mod script;
pub mod selftest;
pub mod session;
mod shelf;
mod spec;
pub mod tart;
pub mod vm;
mod warm;

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::exec::{Command, Exit, OutputSink};
use crate::network::{Policy, PolicyMode};
use crate::usage::Usd;

pub use canary::CanaryError;
pub use error::{SandboxError, SandboxErrorKind};
pub use listed::{Activity, Listed, Removable, Standing};
pub use spec::{Egress, ProxyVariables, Purpose, ReadOnlyMount, Resources, Reuse, SandboxSpec};

/// Ends every process in a sandbox but those that it comes from itself, for where nothing outside can.
const END: &str = include_str!("end.sh");

/// What a provider can enforce. Asked before anything is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// What keeps the sandbox apart from the host.
    pub isolation: Isolation,
    /// What part of a network policy holds.
    pub network: NetworkEnforcement,
    /// Whether memory and processor limits hold.
    pub resources: Enforced,
    /// Whether what an agent program spends is stopped in the middle of an iteration. Where it is not, that is read
    /// from its transcript when the iteration is over.
    pub metering: Enforced,
    /// Whether a port inside can be opened in a person's browser.
    pub preview: bool,
    /// How a credential is used that stays outside the sandbox.
    pub credentials: CredentialRoute,
}

impl Capabilities {
    /// What a person should be told before anything runs in such a sandbox; `None` when it holds what it promises.
    #[must_use]
    pub fn notice(&self) -> Option<&'static str> {
        match self.isolation {
            Isolation::DirectoryOnly => Some(
                "this sandbox isolates nothing but the directory: its commands run as you, with your files, your \
                 processes and your network within reach",
            ),
            Isolation::Container | Isolation::Machine => None,
        }
    }

    /// What a person should be told before an agent program spends money in such a sandbox.
    #[must_use]
    pub fn spending_notice(&self) -> Option<&'static str> {
        match self.metering {
            Enforced::Yes => None,
            Enforced::No => Some(
                "what the agent spends is read from its transcript after each iteration: nothing stops it in the middle \
                 of one",
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
    /// There is none: an agent that needs a credential holds it inside the sandbox.
    None,
}

impl CredentialRoute {
    /// The route that is left under a policy.
    #[must_use]
    pub fn under(self, policy: &Policy) -> Self {
        let restricted = policy.mode() != PolicyMode::AllowAll || policy.restricts();
        match self {
            Self::Gateway | Self::ProxiedLoopback if !restricted => Self::None,
            route => route,
        }
    }
}

/// What keeps a sandbox apart from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Nothing but a directory of its own.
    DirectoryOnly,
    /// A container.
    Container,
    /// A virtual machine.
    Machine,
}

/// What part of a network policy a provider enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkEnforcement {
    /// Nothing.
    Nothing,
    /// That there is no network, or that there is one.
    AllOrNothing,
    /// Address ranges.
    Cidrs,
    /// Names.
    Names,
}

/// Whether a limit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforced {
    /// It does.
    Yes,
    /// It does not; the provider says so.
    No,
}

/// What an hour of a sandbox that runs costs, about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HourlyCost {
    /// The price.
    pub price: Usd,
    /// What it is the price of, for people.
    pub resources: String,
}

/// Makes sandboxes of one kind. Implementations hold a client, never a running sandbox.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The name used in `sandbox.type`.
    fn name(&self) -> &'static str;

    /// What sandboxes of this kind can enforce.
    fn capabilities(&self) -> Capabilities;

    /// Why it cannot enforce a policy of the kind that it enforces otherwise; `None` when it can.
    fn objection(&self, _policy: &Policy) -> Option<String> {
        None
    }

    /// What an hour of such a sandbox costs; `None` where nobody asks for money by the hour.
    fn hourly_cost(&self, _spec: &SandboxSpec) -> Option<HourlyCost> {
        None
    }

    /// Whether sandboxes can be made here at all. Asked before there is a run to make one for.
    async fn check(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    /// Makes a new sandbox and starts it.
    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError>;

    /// Finds the sandbox an earlier process of the same run made; `None` when it is gone.
    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError>;

    /// All sandboxes of this kind, of whatever run. Those that are nothing but a part of their run are not told.
    async fn list(&self) -> Result<Vec<Listed>, SandboxError> {
        Ok(Vec::new())
    }

    /// A sandbox that was listed, to look into it; it stays in the hands of whoever has it.
    async fn attach(&self, _id: &str) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        Ok(None)
    }

    /// Removes a sandbox that was listed, with all that belongs to it. False when it is not there, may not be removed,
    /// or somebody took it meanwhile.
    async fn remove(&self, _id: &str, _removable: Removable) -> Result<bool, SandboxError> {
        Ok(false)
    }
}

/// One live sandbox. Dropping it without [`Sandbox::close`] leaves it to the orphan sweep (or to a resume).
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// What to call it in messages.
    fn id(&self) -> &str;

    /// The absolute directory, inside, that belongs to the run. The clone lives in a directory below it.
    fn root(&self) -> &Path;

    /// The files of the sandbox.
    fn files(&self) -> &dyn SandboxFiles;

    /// Runs a command to its end; each line of output goes to `output` as it comes.
    ///
    /// A command that fails is an `Exit`, not an error. Without a `cwd` it starts in [`Sandbox::root`].
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

    /// Shows again that what keeps it apart holds. Asked before each iteration; an error means that nothing may run in it.
    async fn verify(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    /// What a person should know of that went differently than it should have, each thing once.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ends every process that was started in this sandbox and everything those left behind.
    async fn end_processes(&self) -> Result<(), SandboxError>;

    /// Starts it again after [`Sandbox::stop`]; harmless when it runs.
    async fn start(&self) -> Result<(), SandboxError>;

    /// Ends its processes and keeps its files; harmless when it is stopped. Commands fail until it is started.
    async fn stop(&self) -> Result<(), SandboxError>;

    /// A URL by which a person's browser reaches a port inside. `None` if the provider has no such URLs.
    async fn preview(&self, _port: u16) -> Result<Option<String>, SandboxError> {
        Ok(None)
    }

    /// Removes it. Calling it for one that is gone is harmless.
    async fn close(&self) -> Result<(), SandboxError>;
}

/// The files of one sandbox. Paths are absolute inside the sandbox, or relative to [`Sandbox::root`].
///
/// No path leads out of the root, neither through `..` nor through a symlink that the agent created.
#[async_trait]
pub trait SandboxFiles: Send + Sync {
    /// Reads a file; at most `limit` bytes, an error if it is longer.
    async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, SandboxError>;

    /// Writes a file whole and atomically, with these permission bits, making parent directories as needed.
    async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), SandboxError>;

    /// Adds to the end of a file, making it (mode 644) when it is not there.
    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), SandboxError>;

    /// The entries of a directory, by name.
    async fn list(&self, path: &Path) -> Result<Vec<DirEntry>, SandboxError>;

    /// Makes a directory and its parents; one that exists is fine.
    async fn mkdir(&self, path: &Path) -> Result<(), SandboxError>;

    /// Removes a file or a whole directory; one that is not there is fine.
    async fn remove(&self, path: &Path) -> Result<(), SandboxError>;

    /// Copies a file of the host in.
    async fn upload(&self, from: &Path, to: &Path) -> Result<(), SandboxError>;

    /// Copies a file out to the host; an error if it is longer than `limit`.
    async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), SandboxError>;
}

/// One entry of a directory in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Its name, without the directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Its size in bytes.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
    /// When it was last changed.
    pub mod_time: jiff::Timestamp,
}

/// The clone inside a sandbox's root.
#[must_use]
pub fn clone_dir(sandbox: &dyn Sandbox) -> PathBuf {
    sandbox.root().join("work")
}
