//! What the process runs in: environment, directories, host name and clock. Nothing else in the library reads them.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use crate::clock::{Clock, SystemClock};
use crate::digest::Digest;
use crate::engine;
use crate::exec::Host;
use crate::github::{GitHubClient, GitHubError};
use crate::state::{RunOwner, Runs};

use super::AssemblyError;

/// Variables that every program on the host gets. None of them holds a secret.
const HOST_VARIABLES: [&str; 4] = ["PATH", "HOME", "TMPDIR", "LANG"];

/// What programs that build images get besides: certificates, proxies and the SSH agent.
const BUILDER_VARIABLES: [&str; 14] = [
    "USER",
    "LOGNAME",
    "LC_ALL",
    "LOCALE_ARCHIVE",
    "SSH_AUTH_SOCK",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "ALL_PROXY",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Prefixes of further variables for builders: those of Nix, and the user's directories.
const BUILDER_PREFIXES: [&str; 2] = ["NIX_", "XDG_"];

/// What programs that create VMs get besides: where their engine and their VMs are.
const VM_VARIABLES: [&str; 6] = [
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
    "TART_HOME",
];

/// What programs get besides that talk to the user or to the keychain of the desktop session.
const DESKTOP_VARIABLES: [&str; 6] = [
    "TERM",
    "BROWSER",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
];

/// The environment of a process, its directory, its host and its clock.
///
/// ```
/// use ralph::Surroundings;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let surroundings = Surroundings::from_process()?
///     .with_var("RALPH_HOME", "/var/lib/ralph")
///     .with_dir("/srv/checkout");
/// assert_eq!(surroundings.data_dir()?, std::path::Path::new("/var/lib/ralph"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Surroundings {
    env: BTreeMap<String, String>,
    dir: PathBuf,
    host_name: String,
    attended: bool,
    clock: Arc<dyn Clock>,
    /// The clients for GitHub. What uses the same credential shares one, and so its pace.
    github_clients: Arc<Mutex<BTreeMap<Digest, Arc<GitHubClient>>>>,
}

impl Surroundings {
    /// Reads the surroundings of this process. Variables that are not UTF-8 are skipped.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the environment"
    )]
    pub fn from_process() -> Result<Self, AssemblyError> {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let dir = std::env::current_dir()
            .map_err(|error| AssemblyError::runtime(format!("cannot read the current directory: {error}")))?;
        let surroundings = Self::new(env, dir);
        if surroundings.host_name.is_empty() {
            return Err(AssemblyError::runtime("this host has no name")
                .with_hint("set one: it identifies the process that works on a run"));
        }
        Ok(Self {
            attended: std::io::stdin().is_terminal(),
            ..surroundings
        })
    }

    /// Surroundings with this environment and this current directory, the system's clock and no person at the terminal.
    #[must_use]
    pub fn new(env: BTreeMap<String, String>, dir: impl Into<PathBuf>) -> Self {
        let system = rustix::system::uname();
        Self {
            env,
            dir: dir.into(),
            host_name: system.nodename().to_string_lossy().into_owned(),
            attended: false,
            clock: Arc::new(SystemClock),
            github_clients: Arc::default(),
        }
    }

    /// The client for GitHub with this key, which is created the first time.
    pub(super) fn github_client(
        &self,
        key: Digest,
        create: impl FnOnce() -> Result<GitHubClient, GitHubError>,
    ) -> Result<Arc<GitHubClient>, GitHubError> {
        let mut clients = self.github_clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let client = Arc::new(create()?);
        clients.insert(key, client.clone());
        Ok(client)
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn with_var(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Removes variables of the environment.
    #[must_use]
    pub(crate) fn without_vars(mut self, removed: impl Fn(&str) -> bool) -> Self {
        self.env.retain(|name, _| !removed(name));
        self
    }

    /// Sets the current directory.
    #[must_use]
    pub fn with_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = dir.into();
        self
    }

    /// The environment.
    #[must_use]
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// A variable that is set and not empty.
    #[must_use]
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The current directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether a person is at the terminal.
    #[must_use]
    pub fn is_attended(&self) -> bool {
        self.attended
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Where ralph keeps its data: `RALPH_HOME`, else the XDG data directory.
    pub fn data_dir(&self) -> Result<PathBuf, AssemblyError> {
        match self.var("RALPH_HOME") {
            Some(dir) => Ok(self.dir.join(dir)),
            None => Ok(self.xdg("XDG_DATA_HOME", ".local/share")?.join("ralph")),
        }
    }

    /// Where ralph keeps what it can create again.
    pub fn cache_dir(&self) -> Result<PathBuf, AssemblyError> {
        match self.var("RALPH_HOME") {
            Some(_) => Ok(self.data_dir()?.join("cache")),
            None => Ok(self.xdg("XDG_CACHE_HOME", ".cache")?.join("ralph")),
        }
    }

    /// The user's own configuration file.
    pub(crate) fn user_config(&self) -> Option<PathBuf> {
        let base = self.xdg("XDG_CONFIG_HOME", ".config").ok()?;
        Some(base.join("ralph/config.toml"))
    }

    /// All runs of this user.
    pub fn runs(&self) -> Result<Runs, AssemblyError> {
        Ok(Runs::under(self.data_dir()?.join("runs")))
    }

    /// The file of the host's key for evidence.
    pub(crate) fn evidence_key(&self) -> Result<PathBuf, AssemblyError> {
        Ok(self.data_dir()?.join("evidence-key.pem"))
    }

    /// Starts programs on the host without any secret in their environment.
    #[must_use]
    pub fn host(&self) -> Host {
        self.host_with(|_| false)
    }

    /// Starts programs that build images: `nix`, `git` and `docker buildx`.
    #[must_use]
    pub(crate) fn builder_host(&self) -> Host {
        self.host_with(|name| {
            BUILDER_VARIABLES.contains(&name)
                || BUILDER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        })
    }

    /// Starts programs that create VMs: `tart`, `sbx` and `docker`.
    #[must_use]
    pub(crate) fn vm_host(&self) -> Host {
        self.host_with(|name| VM_VARIABLES.contains(&name))
    }

    /// Starts programs of the user's desktop session: a keychain, or one that talks to the user itself.
    #[must_use]
    pub(crate) fn desktop_host(&self) -> Host {
        self.host_with(|name| DESKTOP_VARIABLES.contains(&name))
    }

    fn host_with(&self, also: impl Fn(&str) -> bool) -> Host {
        let keep = |name: &str| HOST_VARIABLES.contains(&name) || also(name);
        let kept = self
            .env
            .iter()
            .filter(|(name, value)| keep(name) && !value.is_empty());
        Host::new(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Where a container engine is looked for.
    #[must_use]
    pub(crate) fn engine(&self) -> engine::EngineEnvironment {
        engine::EngineEnvironment {
            env: self.env.clone(),
            home: self.var("HOME").map(PathBuf::from),
        }
    }

    /// The user, for people who want to know who asked for something.
    #[must_use]
    pub(crate) fn user(&self) -> String {
        let name = self.var("USER").or_else(|| self.var("LOGNAME"));
        name.unwrap_or("a person").to_owned()
    }

    /// This process as the owner of a run.
    #[must_use]
    pub(crate) fn owner(&self) -> RunOwner {
        RunOwner::this_process(self.host_name.clone())
    }

    fn xdg(&self, variable: &str, below_home: &str) -> Result<PathBuf, AssemblyError> {
        if let Some(dir) = self.var(variable) {
            return Ok(PathBuf::from(dir));
        }
        let home = self.var("HOME").ok_or_else(|| {
            AssemblyError::usage("neither RALPH_HOME nor HOME is set")
                .with_hint("set RALPH_HOME to a directory for ralph's data")
        })?;
        Ok(PathBuf::from(home).join(below_home))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_name_is_that_of_the_system() {
        let name = rustix::system::uname().nodename().to_str().unwrap().to_owned();
        let misleading = BTreeMap::from([("HOSTNAME".to_owned(), "other".to_owned())]);
        assert_eq!(Surroundings::new(misleading, "/nowhere").owner().host, name);
    }
}
