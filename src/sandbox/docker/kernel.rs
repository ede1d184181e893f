//! Whether the containers of an engine run on the kernel of this host, which decides how their networks are sealed.
//!
//! Neither the name of an engine nor the release of its kernel shows that. The boot id does: the kernel draws it at random
//! when it starts. A container of the holder's image prints the one that it sees. The result is kept in a file, because it
//! holds until this host starts again; podman, which has no id that stays, is asked each time.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::super::owner::Owner;
use super::container::{GUEST, label};
use super::seal::{SealTransport, holder};
use crate::atomic_file::{FileAccess, write_atomically};
use crate::engine::{
    ContainerLimits, ContainerNetwork, ContainerSpec, Engine, EngineError, EngineInfo, ReadOnlyFiles,
};
use crate::guest::holder_protocol::BOOT_ID;
use crate::text::error_chain;

/// How long the container may take to print its boot id.
const TIMEOUT: Duration = Duration::from_secs(20);
const LOG_POLL: Duration = Duration::from_millis(10);
const MEMORY: u64 = 32 << 20;
const PIDS: u32 = 8;
/// The label of the containers that print their boot id.
const LABEL: &str = "ralph.kernel";

/// How the network of sandboxes is to be sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SealChoice {
    /// Handed where the engine shares the kernel of this host, relayed elsewhere.
    #[default]
    Auto,
    /// The holder hands its listening sockets to ralph.
    Handed,
    /// The connections are relayed over a stream of the engine.
    Relayed,
}

/// How the networks of an engine's sandboxes are sealed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChosenSeal {
    pub(super) transport: SealTransport,
    reason: SealReason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SealReason {
    Configured,
    /// The engine is not reached by a socket of this host.
    OtherHost,
    SameKernel,
    /// Their releases differ.
    OtherRelease,
    /// Their boot ids differ.
    OtherBoot,
    /// This host is not Linux, or hides its boot id.
    NoBootId,
    /// No container printed its boot id, for this reason.
    NotPrinted(String),
}

impl fmt::Display for ChosenSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match &self.reason {
            SealReason::Configured => "set by sandbox.docker.seal",
            SealReason::OtherHost => "the engine is on another host",
            SealReason::SameKernel => "the engine shares the kernel of this host",
            SealReason::OtherRelease => "the engine runs another release of the kernel than this host",
            SealReason::OtherBoot => "the kernel of the engine was started apart from that of this host",
            SealReason::NoBootId => "this host does not run Linux, or hides its boot id",
            SealReason::NotPrinted(error) => &format!("the boot id of the engine cannot be read: {error}"),
        };
        write!(f, "{} ({reason})", self.transport.name())
    }
}

impl ChosenSeal {
    pub(super) fn configured(transport: SealTransport) -> Self {
        Self {
            transport,
            reason: SealReason::Configured,
        }
    }

    /// On an engine that shares nothing with this host.
    pub(super) fn on_another_host() -> Self {
        Self::because(SealReason::OtherHost)
    }

    fn because(reason: SealReason) -> Self {
        let transport = match reason {
            SealReason::SameKernel => SealTransport::Handed,
            _ => SealTransport::Relayed,
        };
        Self { transport, reason }
    }

    /// Compares the kernel of the engine with that of this host. Results are kept below `cache`. If they cannot be compared,
    /// connections are relayed, which works on any kernel.
    pub(super) async fn by_kernel(probe: KernelProbe<'_>, info: &EngineInfo, cache: &Path) -> Self {
        if info.has_other_kernel {
            return Self::because(SealReason::OtherRelease);
        }
        let Some(own) = own_boot_id() else {
            return Self::because(SealReason::NoBootId);
        };
        // By their age: hosts that share an engine may have one name, and a probe takes less than a second.
        if let Err(error) = probe.engine.remove_abandoned(LABEL, probe.now).await {
            tracing::debug!(%error, "cannot remove containers that printed a boot id");
        }
        let file = cache_file(cache, &info.id);
        let known = file.as_ref().and_then(|file| known_boot_id(file, &own));
        let engines = match known {
            Some(engines) => engines,
            None => match probe.boot_id_in_container().await {
                Ok(engines) => {
                    // It is only asked again if it cannot be kept.
                    let text = format!("{own} {engines}");
                    let _ = file.map(|file| write_atomically(&file, text.as_bytes(), FileAccess::Private));
                    engines
                }
                Err(error) => return Self::because(SealReason::NotPrinted(error_chain(&error))),
            },
        };
        Self::because(if engines == own {
            SealReason::SameKernel
        } else {
            SealReason::OtherBoot
        })
    }
}

/// The boot id of an engine that was kept while this host had the boot id `own`.
fn known_boot_id(file: &Path, own: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let (host, engines) = text.split_once(' ')?;
    (host == own).then(|| engines.to_owned())
}

/// The boot id of this host, if it has one.
fn own_boot_id() -> Option<String> {
    let text = std::fs::read_to_string(BOOT_ID).ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The file with the boot id of the engine with this id; `None` if the engine has none that stays.
fn cache_file(cache: &Path, id: &str) -> Option<PathBuf> {
    let id: String = id.chars().filter(char::is_ascii_alphanumeric).take(80).collect();
    (!id.is_empty()).then(|| cache.join(format!("kernel-{id}")))
}

/// Containers that print the boot id of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelProbe<'a> {
    pub(super) engine: &'a Engine,
    /// This process.
    pub(super) owner: &'a Owner,
    pub(super) now: Timestamp,
}

impl KernelProbe<'_> {
    /// Removes the containers of processes that were killed. One whose owner may live, on another host for example, is
    /// removed when it is older than five minutes.
    pub(super) async fn remove_abandoned(self) -> Result<(), EngineError> {
        for container in self.engine.containers(LABEL).await? {
            let owner = container.labels.get(label::OWNER);
            let owner: Option<Owner> = owner.and_then(|owner| serde_json::from_str(owner).ok());
            if owner.is_some_and(|owner| owner.is_dead(self.owner)) {
                self.engine.remove_container(&container.id).await?;
            }
        }
        self.engine.remove_abandoned(LABEL, self.now).await
    }

    /// The boot id that a container sees. The container removes itself within a minute if this process is killed.
    async fn boot_id_in_container(self) -> Result<String, EngineError> {
        let image = holder::image(self.engine).await?;
        let container = self
            .engine
            .create_container(&probe_container(image, self.owner))
            .await?;
        let printed = async {
            self.engine.start_container(&container).await?;
            first_line(self.engine, &container).await
        }
        .await;
        let removed = self.engine.remove_container(&container).await;
        let printed = printed?;
        removed.map(|()| printed)
    }
}

fn probe_container(image: String, owner: &Owner) -> ContainerSpec {
    let labels = [(LABEL, String::new()), (label::OWNER, owner.to_json())];
    ContainerSpec {
        name: format!("ralph-kernel-{:016x}", fastrand::u64(..)),
        image,
        command: [GUEST, "boot-id"].map(str::to_owned).to_vec(),
        user: "0:0".to_owned(),
        work_dir: PathBuf::from("/"),
        env: BTreeMap::new(),
        labels: labels.map(|(name, value)| (name.to_owned(), value)).into(),
        mounts: Vec::new(),
        volume: None,
        volume_of: None,
        in_memory: BTreeMap::new(),
        limits: ContainerLimits {
            memory_bytes: Some(MEMORY),
            cpu_millis: None,
            pids: Some(PIDS),
        },
        network: ContainerNetwork::Isolated { dns: None },
        seccomp: None,
        runtime: None,
        read_only: ReadOnlyFiles::Nothing,
        manages_network: false,
        removes_itself: true,
    }
}

async fn first_line(engine: &Engine, container: &str) -> Result<String, EngineError> {
    let give_up = Instant::now() + TIMEOUT;
    loop {
        let log = engine.container_log(container, 1).await?;
        if let Some((line, _)) = log.split_once('\n') {
            return Ok(line.trim().to_owned());
        }
        if Instant::now() >= give_up {
            let reason = format!("a container printed no boot id within {} s", TIMEOUT.as_secs());
            return Err(EngineError::invalid_response(container, reason));
        }
        sleep(LOG_POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_for_an_engine_without_an_id() {
        let dir = Path::new("/cache");
        assert_eq!(cache_file(dir, ""), None);
        assert_eq!(cache_file(dir, "../.."), None);
        assert_eq!(cache_file(dir, "1f:2e"), Some(dir.join("kernel-1f2e")));
    }
}
