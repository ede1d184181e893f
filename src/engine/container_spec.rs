//! The settings of a container. It has no capabilities, except for a holder, which manages a network.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount as ApiMount, MountType, MountVolumeOptions,
    ResourcesUlimits,
};
use rustix::process::Resource;

use super::EngineKind;

/// Limits of the engine's log of a container. A sandbox must not be able to fill the engine's disk through it.
const LOG_LIMIT: [(&str, &str); 2] = [("max-size", "1m"), ("max-file", "1")];

/// What podman sets for open files and for processes by itself.
const PODMAN_LIMIT: i64 = 1 << 20;
/// What it lowers its own limit of processes to when it starts.
const PODMAN_PROCESSES: i64 = 1 << 15;

/// The capabilities of a container that manages its network.
const NETWORK_CAPABILITIES: [&str; 2] = ["NET_ADMIN", "NET_BIND_SERVICE"];

const DEVICES: &str = "/dev";
/// The paths that Docker makes read-only by default, and that of the devices.
const READ_ONLY_PATHS: [&str; 6] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
    DEVICES,
];
/// Podman takes no paths. A file system in memory is made read-only once it has its devices.
const PODMAN_DEVICES: &str = "ro,nosuid,noexec,mode=755,size=65536k";

/// The prefix of a network mode that shares the network of another container.
pub(super) const SHARED_NETWORK: &str = "container:";

/// The settings of a container to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Its name.
    pub name: String,
    /// The image, by name or id.
    pub image: String,
    /// The command line of its first process.
    pub command: Vec<String>,
    /// The user of all its processes, as `uid:gid`.
    pub user: String,
    /// The working directory of commands.
    pub work_dir: PathBuf,
    /// Environment variables in addition to those of the image.
    pub env: BTreeMap<String, String>,
    /// Labels that identify it.
    pub labels: BTreeMap<String, String>,
    /// Files and directories of the host that it can see.
    pub mounts: Vec<ContainerMount>,
    /// A directory on a volume of its own.
    pub volume: Option<ContainerVolume>,
    /// The container whose volume it sees, by its id. It cannot change it.
    pub volume_of: Option<String>,
    /// Directories in memory (tmpfs), with their mount options.
    pub in_memory: BTreeMap<PathBuf, String>,
    /// Resource limits.
    pub limits: ContainerLimits,
    /// Its network.
    pub network: ContainerNetwork,
    /// The filter of its system calls. `None` is the engine's default.
    pub seccomp: Option<SeccompProfile>,
    /// The OCI runtime that runs it. `None` is the engine's default.
    pub runtime: Option<String>,
    /// What it cannot change. Mounts and directories in memory can always be changed.
    pub read_only: ReadOnlyFiles,
    /// Whether it may change addresses, routes and the firewall of its network.
    pub manages_network: bool,
    /// Whether the engine removes it when its first process exits.
    pub removes_itself: bool,
}

/// The files of a container that its processes cannot change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOnlyFiles {
    /// Permissions alone decide.
    Nothing,
    /// Its root file system.
    Root,
    /// That, and the names in `/dev`. Podman then gives it no pseudo-terminals.
    RootAndDevices,
}

/// A seccomp profile. Docker takes its text, podman the path of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeccompProfile {
    /// The profile, as JSON.
    pub json: String,
    /// A file with the same content that the engine can read.
    pub file: PathBuf,
}

impl SeccompProfile {
    /// The security option of a container, as an engine of this kind reads it.
    fn option(&self, kind: EngineKind) -> String {
        match kind {
            EngineKind::Docker => format!("seccomp={}", self.json),
            EngineKind::Podman => format!("seccomp={}", self.file.display()),
        }
    }
}

/// A bind mount of a file or directory of the engine's host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerMount {
    /// The path on the engine's host.
    pub source: PathBuf,
    /// The path in the container.
    pub target: PathBuf,
    /// Whether the container cannot change it.
    pub read_only: bool,
}

/// A volume that the engine creates for one container, and removes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerVolume {
    /// The path in the container.
    pub target: PathBuf,
    /// Whether it begins with what the image has there, rather than empty.
    pub copies_image: bool,
}

/// Resource limits of a container. `None` means unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerLimits {
    /// Bytes of memory. There is no swap.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a CPU.
    pub cpu_millis: Option<u32>,
    /// The number of processes and threads.
    pub pids: Option<u32>,
}

/// The network of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerNetwork {
    /// Only loopback.
    Isolated {
        /// The DNS server of the container and of those that share its network.
        dns: Option<Ipv4Addr>,
    },
    /// The network of another container, by its id.
    SharedWith(String),
    /// The default network of the engine.
    Bridge,
}

impl ContainerSpec {
    pub(super) fn body(&self, kind: EngineKind) -> ContainerCreateBody {
        ContainerCreateBody {
            image: Some(self.image.clone()),
            // Replaces the entry point of the image.
            entrypoint: Some(self.command.clone()),
            cmd: Some(Vec::new()),
            user: Some(self.user.clone()),
            working_dir: Some(self.work_dir.to_string_lossy().into_owned()),
            env: Some(pairs(&self.env)),
            labels: Some(self.labels.clone().into_iter().collect()),
            // The first process needs no graceful stop.
            stop_signal: Some("SIGKILL".to_owned()),
            host_config: Some(self.host_config(kind)),
            ..Default::default()
        }
    }

    fn host_config(&self, kind: EngineKind) -> HostConfig {
        let memory = self.limits.memory_bytes.map(saturating);
        let seccomp = self.seccomp.as_ref().map(|profile| profile.option(kind));
        let no_gain = std::iter::once("no-new-privileges".to_owned());
        HostConfig {
            privileged: Some(false),
            auto_remove: Some(self.removes_itself),
            cap_drop: Some(vec!["ALL".to_owned()]),
            cap_add: self
                .manages_network
                .then(|| NETWORK_CAPABILITIES.map(str::to_owned).to_vec()),
            readonly_rootfs: Some(self.read_only != ReadOnlyFiles::Nothing),
            readonly_paths: (self.has_read_only_devices() && kind == EngineKind::Docker)
                .then(|| READ_ONLY_PATHS.map(str::to_owned).to_vec()),
            runtime: self.runtime.clone(),
            // The agent, which shares this network, must not listen on low ports.
            sysctls: self.manages_network.then(|| {
                HashMap::from([(
                    "net.ipv4.ip_unprivileged_port_start".to_owned(),
                    "1024".to_owned(),
                )])
            }),
            dns: self.dns().map(|server| vec![server.to_string()]),
            // No search domains of the host.
            dns_search: self.dns().map(|_| vec![".".to_owned()]),
            security_opt: Some(no_gain.chain(seccomp).collect()),
            memory,
            memory_swap: memory,
            nano_cpus: self.limits.cpu_millis.map(|millis| i64::from(millis) * 1_000_000),
            pids_limit: self.limits.pids.map(i64::from),
            ulimits: Some(ulimits(kind)),
            mounts: Some(self.mounts()),
            volumes_from: self.volume_of.as_ref().map(|id| vec![format!("{id}:ro")]),
            tmpfs: Some(self.in_memory(kind)),
            network_mode: Some(match &self.network {
                ContainerNetwork::Isolated { .. } => "none".to_owned(),
                ContainerNetwork::SharedWith(container) => format!("{SHARED_NETWORK}{container}"),
                ContainerNetwork::Bridge => "bridge".to_owned(),
            }),
            ipc_mode: Some("private".to_owned()),
            // Podman can be configured to share them with the host; Docker knows no name for its default.
            pid_mode: (kind == EngineKind::Podman).then(|| "private".to_owned()),
            // The first process is that of the spec, whatever the engine is configured to put before it.
            init: Some(false),
            log_config: Some(HostConfigLogConfig {
                typ: Some("json-file".to_owned()),
                config: Some(HashMap::from(
                    LOG_LIMIT.map(|(name, value)| (name.to_owned(), value.to_owned())),
                )),
            }),
            ..Default::default()
        }
    }

    fn has_read_only_devices(&self) -> bool {
        self.read_only == ReadOnlyFiles::RootAndDevices
    }

    fn in_memory(&self, kind: EngineKind) -> HashMap<String, String> {
        let dirs = self.in_memory.iter();
        let dirs = dirs.map(|(dir, options)| (dir.to_string_lossy().into_owned(), options.clone()));
        let devices = (self.has_read_only_devices() && kind == EngineKind::Podman)
            .then(|| (DEVICES.to_owned(), PODMAN_DEVICES.to_owned()));
        dirs.chain(devices).collect()
    }

    /// Without a source, the engine creates a volume and removes it with the container.
    fn mounts(&self) -> Vec<ApiMount> {
        let shared = self.volume.iter().map(|volume| ApiMount {
            typ: Some(MountType::VOLUME),
            target: Some(volume.target.to_string_lossy().into_owned()),
            volume_options: (!volume.copies_image).then(|| MountVolumeOptions {
                no_copy: Some(true),
                ..Default::default()
            }),
            ..Default::default()
        });
        let mounts = self.mounts.iter().map(ContainerMount::as_api);
        mounts.chain(shared).collect()
    }

    fn dns(&self) -> Option<Ipv4Addr> {
        match self.network {
            ContainerNetwork::Isolated { dns } => dns,
            ContainerNetwork::SharedWith(_) | ContainerNetwork::Bridge => None,
        }
    }
}

impl ContainerMount {
    fn as_api(&self) -> ApiMount {
        ApiMount {
            typ: Some(MountType::BIND),
            source: Some(self.source.to_string_lossy().into_owned()),
            target: Some(self.target.to_string_lossy().into_owned()),
            read_only: Some(self.read_only),
            ..Default::default()
        }
    }
}

/// No core dumps. Podman drops all of its configured limits if one is set, and then raises files and processes to
/// [`PODMAN_LIMIT`], which is not permitted to every root. So it gets those of this process.
fn ulimits(kind: EngineKind) -> Vec<ResourcesUlimits> {
    let own = |resource| {
        let limit = rustix::process::getrlimit(resource).maximum;
        limit.map_or(PODMAN_LIMIT, |limit| saturating(limit).min(PODMAN_LIMIT))
    };
    let limits = match kind {
        EngineKind::Docker => vec![("core", 0)],
        EngineKind::Podman => vec![
            ("core", 0),
            ("nofile", own(Resource::Nofile)),
            ("nproc", own(Resource::Nproc).min(PODMAN_PROCESSES)),
        ],
    };
    let ulimit = |(name, limit): (&str, i64)| ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(limit),
        hard: Some(limit),
    };
    limits.into_iter().map(ulimit).collect()
}

/// Variables as `NAME=value`, the form of the API.
pub(super) fn pairs(env: &BTreeMap<String, String>) -> Vec<String> {
    env.iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn saturating(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
