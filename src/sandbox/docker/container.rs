//! The container of a sandbox, as a value.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::owner::Owner;
use super::super::sandbox_dir::{SandboxDir, SandboxRecord};
use super::super::{Resources, SandboxSpec, fingerprint};
use super::backend::{EngineHost, NetworkMode};
use super::inspection;
use super::seal::SealTransport;
use super::seccomp;
use super::session_socket;
use super::workspace::WorkspacePlace;
use crate::engine::{
    Container, ContainerLimits, ContainerMount, ContainerNetwork, ContainerSpec, ContainerVolume, Digest,
    ReadOnlyFiles,
};

/// Where the workspace is inside.
pub(super) const ROOT: &str = "/workspace";

/// The file that names the DNS server, inside.
const RESOLVER: &str = "/etc/resolv.conf";

/// Where the guest program is inside.
pub(super) const GUEST: &str = "/.ralph/guest";

/// The labels of containers of ralph.
pub(super) mod label {
    /// The run it was created for. Every container of ralph has this label.
    pub(in super::super) const RUN: &str = "ralph.run";
    /// The process that created it.
    pub(in super::super) const OWNER: &str = "ralph.owner";
    /// The version of ralph that created it.
    pub(in super::super) const VERSION: &str = "ralph.version";
    /// The fingerprint of the sandbox.
    pub(in super::super) const FINGERPRINT: &str = "ralph.fingerprint";
    /// The path of its workspace on the host.
    pub(in super::super) const WORKSPACE: &str = "ralph.workspace";
    /// [`HOLDER`] for a holder; the container of a sandbox has no such label.
    pub(in super::super) const ROLE: &str = "ralph.role";
    /// The role of a holder.
    pub(in super::super) const HOLDER: &str = "holder";
}

/// The limit of processes and threads: enough for a parallel build, and a bound for a fork bomb.
const PIDS: u32 = 4096;
/// The size limit of `/tmp` if memory has no limit. `/tmp` counts as memory.
const TMP_BYTES: u64 = 2 << 30;

/// The first process. It starts nothing for the agent, reaps orphaned processes and never exits. Killing every process
/// kills its `sleep` too; then it starts another.
const KEEP: [&str; 3] = ["/bin/sh", "-c", "while :; do sleep 2147483647 & wait; done"];

/// Where the container of a sandbox gets the guest program from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GuestSource {
    /// A file of the host.
    File(PathBuf),
    /// The container of its holder, by its id. Its sessions use the streams of the engine.
    Holder(String),
    /// It has none, for this reason.
    Missing(&'static str),
}

/// The parts of a container that its spec does not determine.
pub(super) struct ContainerParts {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) network: ContainerNetwork,
    pub(super) guest: GuestSource,
    /// Whether only evidence is gathered in it: what one command leaves must not reach the next.
    pub(super) for_evidence: bool,
}

/// Changes with everything that a sandbox is created from.
pub(super) fn fingerprint(
    spec: &SandboxSpec,
    image: &Digest,
    host: &EngineHost,
    network: &NetworkMode,
) -> String {
    fingerprint::fingerprint(&(
        (
            crate::guest::VERSION,
            network.transport().map(SealTransport::name),
        ),
        seccomp::PROFILE,
        image.to_string(),
        (
            host.user.to_string(),
            host.user.owns_programs(),
            &host.runtime,
            host.place.name(),
        ),
        spec.network.lines(),
        &spec.mounts,
        &spec.resources,
        &spec.env,
        &spec.purpose.task,
    ))
}

/// The labels of the containers of a sandbox.
pub(super) fn labels(record: &SandboxRecord, dir: &SandboxDir) -> BTreeMap<String, String> {
    let labels = [
        (label::RUN, record.run.to_string()),
        (label::OWNER, record.owner.to_json()),
        (label::VERSION, env!("CARGO_PKG_VERSION").to_owned()),
        (label::FINGERPRINT, record.fingerprint.clone()),
        (label::WORKSPACE, dir.workspace().display().to_string()),
    ];
    labels.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The container of a sandbox.
pub(super) fn container(
    host: &EngineHost,
    spec: &SandboxSpec,
    image: &Digest,
    dir: &SandboxDir,
    parts: ContainerParts,
) -> ContainerSpec {
    let mounts = mounts(host, spec, &parts, dir);
    ContainerSpec {
        name: dir.name(),
        image: image.to_string(),
        command: KEEP.map(str::to_owned).to_vec(),
        user: host.user.to_string(),
        work_dir: PathBuf::from(ROOT),
        env: variables(spec),
        labels: parts.labels,
        mounts,
        volume: (host.place == WorkspacePlace::Volume).then(|| ContainerVolume {
            target: PathBuf::from(ROOT),
            // What the image has there is not the work of this run, and belongs to a user that the agent is not.
            copies_image: false,
        }),
        volume_of: match parts.guest {
            GuestSource::Holder(holder) => Some(holder),
            GuestSource::File(_) | GuestSource::Missing(_) => None,
        },
        in_memory: in_memory(host, &spec.resources),
        limits: limits(&spec.resources, host.processors),
        network: parts.network,
        seccomp: Some(host.seccomp.clone()),
        runtime: host.runtime.clone(),
        read_only: match (host.user.owns_programs(), parts.for_evidence) {
            (false, _) => ReadOnlyFiles::Nothing,
            (true, false) => ReadOnlyFiles::Root,
            (true, true) => ReadOnlyFiles::RootAndDevices,
        },
        manages_network: false,
        removes_itself: false,
    }
}

/// The process that created the container.
pub(super) fn creator(container: &Container) -> Option<Owner> {
    serde_json::from_str(container.labels.get(label::OWNER)?).ok()
}

/// Whether it may be of the data directory with this id.
pub(super) fn may_be_in_data_dir(container: &Container, id: Option<&str>) -> bool {
    creator(container).is_none_or(|owner| owner.may_be_in_data_dir(id))
}

fn variables(spec: &SandboxSpec) -> BTreeMap<String, String> {
    let own = [
        ("HOME", format!("{ROOT}/home")),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("USER", "agent".to_owned()),
    ];
    let mut env = BTreeMap::from(own.map(|(name, value)| (name.to_owned(), value)));
    if spec.network.inspects_any() {
        env.extend(inspection::variables());
    }
    env.extend(spec.env.clone());
    env
}

fn mounts(
    host: &EngineHost,
    spec: &SandboxSpec,
    parts: &ContainerParts,
    dir: &SandboxDir,
) -> Vec<ContainerMount> {
    let own = (host.place == WorkspacePlace::Shared).then(|| ContainerMount {
        source: dir.workspace(),
        target: PathBuf::from(ROOT),
        read_only: false,
    });
    let read_only = |source: PathBuf, target: &str| ContainerMount {
        source,
        target: PathBuf::from(target),
        read_only: true,
    };
    let guest = match &parts.guest {
        GuestSource::File(file) => vec![
            read_only(file.clone(), GUEST),
            read_only(dir.session_socket_dir(), session_socket::DIRECTORY),
        ],
        GuestSource::Holder(_) | GuestSource::Missing(_) => Vec::new(),
    };
    // Elsewhere they are on the volume of the holder.
    let trust = (spec.network.inspects_any() && !host.is_remote)
        .then(|| read_only(dir.trust(), inspection::DIRECTORY));
    let others = spec.mounts.iter().map(|mount| ContainerMount {
        source: mount.source.clone(),
        target: mount.target.clone(),
        read_only: true,
    });
    let resolver = host
        .resolver
        .iter()
        .filter(|_| matches!(parts.network, ContainerNetwork::SharedWith(_)))
        .map(|file| read_only(file.clone(), RESOLVER));
    let ours = own.into_iter().chain(guest).chain(trust).chain(resolver);
    ours.chain(others).collect()
}

/// Where everybody may write. On a read-only file system that is no directory of the image.
fn in_memory(host: &EngineHost, resources: &Resources) -> BTreeMap<PathBuf, String> {
    let dirs = if host.user.owns_programs() {
        &["/tmp", "/var/tmp"][..]
    } else {
        &["/tmp"]
    };
    let options = tmp_options(resources);
    dirs.iter()
        .map(|dir| (PathBuf::from(dir), options.clone()))
        .collect()
}

/// `/tmp` counts as memory and gets at most half of it.
fn tmp_options(resources: &Resources) -> String {
    let size = resources
        .memory_bytes
        .map_or(TMP_BYTES, |bytes| (bytes / 2).min(TMP_BYTES));
    format!("rw,exec,nosuid,nodev,mode=1777,size={size}")
}

fn limits(resources: &Resources, processors: u32) -> ContainerLimits {
    ContainerLimits {
        memory_bytes: resources.memory_bytes,
        // An engine rejects a limit above what it has.
        cpu_millis: resources
            .cpu_millis
            .map(|millis| millis.min(processors.saturating_mul(1000))),
        pids: Some(PIDS),
    }
}
