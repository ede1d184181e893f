//! What a container is made from. Whatever is asked for, it gains no capability beyond what it is given, and that is none
//! unless it is a network's holder.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount as ApiMount, MountType, ResourcesUlimits,
};

/// The most that the container's first process may leave in the engine's log: a sandbox writes nothing there, and what
/// something inside writes in its place must not fill the engine's disk.
const LOG_LIMIT: [(&str, &str); 2] = [("max-size", "1m"), ("max-file", "1")];

/// How an engine writes that a container has the network of another.
pub(super) const JOINED: &str = "container:";

/// What a container is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Its name.
    pub name: String,
    /// The image, by name or id.
    pub image: String,
    /// What its first process is.
    pub command: Vec<String>,
    /// Who it and everything in it is, as `uid:gid`.
    pub user: String,
    /// Where commands start.
    pub work_dir: PathBuf,
    /// Variables beside those of the image.
    pub env: BTreeMap<String, String>,
    /// By which it is found again.
    pub labels: BTreeMap<String, String>,
    /// What of the host it sees.
    pub mounts: Vec<Mount>,
    /// Directories in memory, with their mount options.
    pub in_memory: BTreeMap<PathBuf, String>,
    /// What it may use.
    pub limits: Limits,
    /// What it can reach.
    pub network: Network,
    /// What it may do to the network it has.
    pub power: Power,
}

/// What a container may do to the network it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Use it.
    Nothing,
    /// Arrange it: addresses, routes, firewall. Such a container cannot write to its own file system.
    ArrangeNetwork,
}

/// A file or directory of the engine's machine that a container sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is on the engine's machine.
    pub source: PathBuf,
    /// Where it is seen.
    pub target: PathBuf,
    /// Whether it can be changed.
    pub access: MountAccess,
}

/// Whether a mount can be changed from inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountAccess {
    /// It cannot.
    ReadOnly,
    /// It can.
    ReadWrite,
}

/// What a container may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory; there is no swap beside it.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a processor.
    pub cpu_millis: Option<u32>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

/// What a container can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Itself alone. Names are asked of this address, if any.
    Nothing {
        /// Where names are asked for, by it and by those that share its network.
        dns: Option<Ipv4Addr>,
    },
    /// What another container has, by its id.
    Of(String),
    /// Whatever the engine's machine can.
    Bridge,
}

impl ContainerSpec {
    pub(super) fn body(&self) -> ContainerCreateBody {
        ContainerCreateBody {
            image: Some(self.image.clone()),
            // An image's own entry point would run before ours, or in its place.
            entrypoint: Some(self.command.clone()),
            cmd: Some(Vec::new()),
            user: Some(self.user.clone()),
            working_dir: Some(self.work_dir.to_string_lossy().into_owned()),
            env: Some(pairs(&self.env)),
            labels: Some(self.labels.clone().into_iter().collect()),
            // The first process has nothing to finish.
            stop_signal: Some("SIGKILL".to_owned()),
            host_config: Some(self.host_config()),
            ..Default::default()
        }
    }

    fn host_config(&self) -> HostConfig {
        let memory = self.limits.memory_bytes.map(saturating);
        HostConfig {
            privileged: Some(false),
            cap_drop: Some(vec!["ALL".to_owned()]),
            cap_add: Some(self.capabilities()),
            readonly_rootfs: Some(self.power == Power::ArrangeNetwork),
            sysctls: Some(self.sysctls()),
            dns: self.dns().map(|server| vec![server.to_string()]),
            // None of the host's own.
            dns_search: self.dns().map(|_| vec![".".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            memory,
            memory_swap: memory,
            nano_cpus: self.limits.cpu_millis.map(|millis| i64::from(millis) * 1_000_000),
            pids_limit: self.limits.pids.map(i64::from),
            ulimits: Some(vec![ResourcesUlimits {
                name: Some("core".to_owned()),
                soft: Some(0),
                hard: Some(0),
            }]),
            mounts: Some(self.mounts.iter().map(Mount::as_api).collect()),
            tmpfs: Some(
                self.in_memory
                    .iter()
                    .map(|(dir, options)| (dir.to_string_lossy().into_owned(), options.clone()))
                    .collect(),
            ),
            network_mode: Some(match &self.network {
                Network::Nothing { .. } => "none".to_owned(),
                Network::Of(container) => format!("{JOINED}{container}"),
                Network::Bridge => "bridge".to_owned(),
            }),
            ipc_mode: Some("private".to_owned()),
            log_config: Some(HostConfigLogConfig {
                typ: Some("json-file".to_owned()),
                config: Some(HashMap::from(
                    LOG_LIMIT.map(|(name, value)| (name.to_owned(), value.to_owned())),
                )),
            }),
            ..Default::default()
        }
    }
}

impl ContainerSpec {
    fn capabilities(&self) -> Vec<String> {
        let names: &[&str] = match self.power {
            Power::Nothing => &[],
            Power::ArrangeNetwork => &["NET_ADMIN", "NET_BIND_SERVICE"],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The low ports are for whoever arranges the network, and for nobody else in it.
    fn sysctls(&self) -> HashMap<String, String> {
        match self.power {
            Power::Nothing => HashMap::new(),
            Power::ArrangeNetwork => HashMap::from([(
                "net.ipv4.ip_unprivileged_port_start".to_owned(),
                "1024".to_owned(),
            )]),
        }
    }

    fn dns(&self) -> Option<Ipv4Addr> {
        match self.network {
            Network::Nothing { dns } => dns,
            Network::Of(_) | Network::Bridge => None,
        }
    }
}

impl Mount {
    fn as_api(&self) -> ApiMount {
        ApiMount {
            typ: Some(MountType::BIND),
            source: Some(self.source.to_string_lossy().into_owned()),
            target: Some(self.target.to_string_lossy().into_owned()),
            read_only: Some(self.access == MountAccess::ReadOnly),
            ..Default::default()
        }
    }
}

/// `NAME=value`, as the API has variables.
pub(super) fn pairs(env: &BTreeMap<String, String>) -> Vec<String> {
    env.iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn saturating(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
