//! The process's surroundings, read once and passed on. Nothing else in the crate reads the environment.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;

use crate::engine;
use crate::exec::Host;
use crate::state::{RunOwner, Runs};

use super::AssemblyError;

/// Variables that programs on the host need and that hold nothing confidential.
const FOR_THE_HOST: [&str; 4] = ["PATH", "HOME", "TMPDIR", "LANG"];

/// What builders of images need besides, as far as they are single variables: where certificates, proxies and keys are.
const FOR_BUILDERS: [&str; 14] = [
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

/// What programs that make machines need besides: where their engine and their machines are.
const FOR_MACHINES: [&str; 6] = [
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
    "TART_HOME",
];

/// What programs need besides that speak to the user, or to the keychain of the user's session.
const FOR_THE_SESSION: [&str; 6] = [
    "TERM",
    "BROWSER",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
];

/// And as far as they come in families: Nix's own, and where a user's files are.
const FAMILIES_FOR_BUILDERS: [&str; 2] = ["NIX_", "XDG_"];

/// What the process was started in.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Its environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Its directory.
    pub(crate) cwd: PathBuf,
    /// Whether a person is at the terminal.
    pub(crate) attended: bool,
}

impl Surroundings {
    /// Reads them. Variables that are no UTF-8 are passed over: none of ours can be.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the environment"
    )]
    pub fn from_process() -> Result<Self, AssemblyError> {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let cwd = std::env::current_dir().map_err(|error| {
            AssemblyError::runtime(format!("the current directory cannot be read: {error}"))
        })?;
        Ok(Self {
            env,
            cwd,
            attended: std::io::stdin().is_terminal(),
        })
    }

    /// A variable that is set and not empty.
    #[must_use]
    pub(crate) fn var(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Where ralph keeps its data: `RALPH_HOME`, else the XDG data directory.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, AssemblyError> {
        if let Some(dir) = self.var("RALPH_HOME") {
            return Ok(self.cwd.join(dir));
        }
        self.xdg("XDG_DATA_HOME", ".local/share")
            .map(|base| base.join("ralph"))
    }

    /// Where ralph keeps what it can make again.
    pub(crate) fn cache_dir(&self) -> Result<PathBuf, AssemblyError> {
        if self.var("RALPH_HOME").is_some() {
            return self.data_dir().map(|dir| dir.join("cache"));
        }
        self.xdg("XDG_CACHE_HOME", ".cache")
            .map(|base| base.join("ralph"))
    }

    /// The user's own configuration file.
    pub(crate) fn user_config(&self) -> Option<PathBuf> {
        self.xdg("XDG_CONFIG_HOME", ".config")
            .ok()
            .map(|base| base.join("ralph/config.toml"))
    }

    /// All runs of this user.
    pub(crate) fn runs(&self) -> Result<Runs, AssemblyError> {
        Ok(Runs::under(self.data_dir()?.join("runs")))
    }

    /// Starts processes on the host with nothing confidential in their environment.
    #[must_use]
    pub(crate) fn host(&self) -> Host {
        self.host_with(|name| FOR_THE_HOST.contains(&name))
    }

    /// Starts what builds images: `nix`, `git` and `docker buildx`.
    #[must_use]
    pub(crate) fn builder_host(&self) -> Host {
        let in_family = |name: &str| {
            FAMILIES_FOR_BUILDERS
                .iter()
                .any(|family| name.starts_with(family))
        };
        self.host_with(|name| FOR_THE_HOST.contains(&name) || FOR_BUILDERS.contains(&name) || in_family(name))
    }

    /// Starts what makes machines: `tart`, `sbx` and `docker`.
    #[must_use]
    pub(crate) fn machine_host(&self) -> Host {
        self.host_with(|name| FOR_THE_HOST.contains(&name) || FOR_MACHINES.contains(&name))
    }

    /// Starts what belongs to the user's session: the program of a keychain, and what speaks to the user itself.
    #[must_use]
    pub(crate) fn session_host(&self) -> Host {
        self.host_with(|name| FOR_THE_HOST.contains(&name) || FOR_THE_SESSION.contains(&name))
    }

    fn host_with(&self, keep: impl Fn(&str) -> bool) -> Host {
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

    /// This process as the owner of a run.
    #[must_use]
    pub(crate) fn owner(&self) -> RunOwner {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .or_else(|| self.var("HOSTNAME").map(ToOwned::to_owned))
            .unwrap_or_else(|| "localhost".to_owned());
        RunOwner {
            host: host.trim().to_owned(),
            pid: std::process::id(),
        }
    }

    fn xdg(&self, variable: &str, below_home: &str) -> Result<PathBuf, AssemblyError> {
        if let Some(dir) = self.var(variable) {
            return Ok(PathBuf::from(dir));
        }
        let home = self.var("HOME").ok_or_else(|| {
            AssemblyError::usage("neither RALPH_HOME nor HOME is set")
                .with_hint("set RALPH_HOME to a directory of yours")
        })?;
        Ok(PathBuf::from(home).join(below_home))
    }
}
