//! What a sandbox's container is made from: decided here, made elsewhere.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::guest::Guest;
use super::super::owner::Owner;
use super::super::place::Place;
use super::super::{Resources, SandboxSpec, fingerprint};
use super::door;
use super::trust;
use super::user::Agent;
use crate::engine::{ContainerLimits, ContainerMount, ContainerNetwork, ContainerSpec, Digest};

/// Where the workspace is inside.
pub(super) const ROOT: &str = "/workspace";

/// Where the guest's file is inside.
pub(super) const GUEST: &str = "/.ralph/guest";

/// The labels of our containers.
pub(super) mod label {
    /// The run it was made for. Every container of ours has it.
    pub(in super::super) const RUN: &str = "ralph.run";
    /// The process it was made by.
    pub(in super::super) const OWNER: &str = "ralph.owner";
    /// The version of ralph it was made by.
    pub(in super::super) const VERSION: &str = "ralph.version";
    /// What it was made from.
    pub(in super::super) const FINGERPRINT: &str = "ralph.fingerprint";
    /// Where its workspace is on the host.
    pub(in super::super) const WORKSPACE: &str = "ralph.workspace";
    /// What it is beside a sandbox's own container, which has none.
    pub(in super::super) const ROLE: &str = "ralph.role";
    /// The holder of a sandbox's network.
    pub(in super::super) const HOLDER: &str = "holder";
}

/// The most processes and threads: enough for a parallel build, and an end to what only multiplies.
const PIDS: u32 = 4096;
/// What `/tmp` may hold where nobody limits memory, of which it is a part.
const TMP_BYTES: u64 = 2 << 30;

/// The first process: it starts nothing of the agent's, takes in what the agent leaves behind, and never ends. What
/// kills everything kills its `sleep` too, and then there is another.
const KEEP: [&str; 3] = ["/bin/sh", "-c", "while :; do sleep 2147483647 & wait; done"];

/// What is known when a container is planned.
pub(super) struct Facts<'a> {
    /// The image, by content.
    pub(super) image: &'a Digest,
    /// Who the agent is.
    pub(super) agent: Agent,
    /// What runs its commands.
    pub(super) guest: &'a Guest,
    /// How many processors the engine has.
    pub(super) processors: u32,
    /// Who makes it.
    pub(super) owner: &'a Owner,
}

/// What would have to be made anew if it were different.
pub(super) fn fingerprint(spec: &SandboxSpec, facts: &Facts<'_>) -> String {
    fingerprint::of(&(
        crate::guest::VERSION,
        facts.image.to_string(),
        facts.agent.as_text(),
        spec.network.lines(),
        &spec.mounts,
        &spec.resources,
        &spec.env,
        &spec.purpose.task,
    ))
}

/// The labels of what belongs to a sandbox at this place.
pub(super) fn labels(spec: &SandboxSpec, facts: &Facts<'_>, place: &Place) -> BTreeMap<String, String> {
    let labels = [
        (label::RUN, spec.run.to_string()),
        (label::OWNER, facts.owner.as_json()),
        (label::VERSION, env!("CARGO_PKG_VERSION").to_owned()),
        (label::FINGERPRINT, fingerprint(spec, facts)),
        (label::WORKSPACE, place.workspace().display().to_string()),
    ];
    labels
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The container of a sandbox at this place, on such a network.
pub(super) fn container(
    spec: &SandboxSpec,
    facts: &Facts<'_>,
    place: &Place,
    network: ContainerNetwork,
) -> ContainerSpec {
    ContainerSpec {
        name: place.name(),
        image: facts.image.to_string(),
        command: KEEP.map(str::to_owned).to_vec(),
        user: facts.agent.as_text(),
        work_dir: PathBuf::from(ROOT),
        env: variables(spec),
        labels: labels(spec, facts, place),
        mounts: mounts(spec, facts.guest, place),
        in_memory: BTreeMap::from([(PathBuf::from("/tmp"), tmp_options(&spec.resources))]),
        limits: limits(&spec.resources, facts.processors),
        network,
        manages_network: false,
    }
}

fn variables(spec: &SandboxSpec) -> BTreeMap<String, String> {
    let own = [
        ("HOME", format!("{ROOT}/home")),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("USER", "agent".to_owned()),
    ];
    let mut env: BTreeMap<String, String> = own
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    if spec.network.inspects_any() {
        env.extend(trust::variables());
    }
    env.extend(spec.env.clone());
    env
}

fn mounts(spec: &SandboxSpec, guest: &Guest, place: &Place) -> Vec<ContainerMount> {
    let own = ContainerMount {
        source: place.workspace(),
        target: PathBuf::from(ROOT),
        read_only: false,
    };
    let read_only = |source: PathBuf, target: &str| ContainerMount {
        source,
        target: PathBuf::from(target),
        read_only: true,
    };
    let guest = match guest {
        Guest::Here(file) => vec![
            read_only(file.clone(), GUEST),
            read_only(place.door(), door::DIRECTORY),
        ],
        Guest::Missing(_) => vec![],
    };
    let trust = spec
        .network
        .inspects_any()
        .then(|| read_only(place.trust(), trust::DIRECTORY));
    let others = spec.mounts.iter().map(|mount| ContainerMount {
        source: mount.source.clone(),
        target: mount.target.clone(),
        read_only: true,
    });
    let ours = std::iter::once(own).chain(guest).chain(trust);
    ours.chain(others).collect()
}

/// What is in `/tmp` is in memory and counts as memory; half of it at most.
fn tmp_options(resources: &Resources) -> String {
    let size = resources
        .memory_bytes
        .map_or(TMP_BYTES, |bytes| (bytes / 2).min(TMP_BYTES));
    format!("rw,exec,nosuid,nodev,mode=1777,size={size}")
}

fn limits(resources: &Resources, processors: u32) -> ContainerLimits {
    ContainerLimits {
        memory_bytes: resources.memory_bytes,
        // An engine refuses to give more than it has.
        cpu_millis: resources
            .cpu_millis
            .map(|millis| millis.min(processors.saturating_mul(1000))),
        pids: Some(PIDS),
    }
}
