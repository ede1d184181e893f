//! Whether the containers of an engine run on the kernel of this host, which decides how their networks are sealed.
//!
//! Neither the name of an engine nor the release of its kernel shows that. The boot id does: the kernel draws it at random
//! when it starts. A container of the holder's image prints the one that it sees. The result is kept in a file, because it
//! holds until this host starts again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::container::GUEST;
use super::seal::{SealTransport, holder};
use crate::atomic_file::{FileAccess, write_atomically};
use crate::engine::{ContainerLimits, ContainerNetwork, ContainerSpec, Engine, EngineError, EngineInfo};
use crate::guest::holder_protocol::BOOT_ID;

/// How long the container may take to print its boot id.
const TIMEOUT: Duration = Duration::from_secs(20);
const LOG_POLL: Duration = Duration::from_millis(10);
const MEMORY: u64 = 32 << 20;
const PIDS: u32 = 8;

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
    SameKernel,
    /// Their releases differ.
    OtherRelease,
    /// Their boot ids differ.
    OtherBoot,
    /// This host is not Linux, or hides its boot id.
    NoBootId,
}

impl fmt::Display for ChosenSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            SealReason::Configured => "set by sandbox.docker.seal",
            SealReason::SameKernel => "the engine shares the kernel of this host",
            SealReason::OtherRelease => "the engine runs another release of the kernel than this host",
            SealReason::OtherBoot => "the kernel of the engine was started apart from that of this host",
            SealReason::NoBootId => "this host does not run Linux, or hides its boot id",
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

    fn because(reason: SealReason) -> Self {
        let transport = match reason {
            SealReason::SameKernel => SealTransport::Handed,
            _ => SealTransport::Relayed,
        };
        Self { transport, reason }
    }

    /// Compares the kernel of the engine with that of this host. Results are kept below `cache`.
    pub(super) async fn by_kernel(
        engine: &Engine,
        info: &EngineInfo,
        cache: &Path,
    ) -> Result<Self, EngineError> {
        if info.has_other_kernel {
            return Ok(Self::because(SealReason::OtherRelease));
        }
        let Some(own) = own_boot_id() else {
            return Ok(Self::because(SealReason::NoBootId));
        };
        let file = cache.join(format!("kernel-{}", file_name(&info.id)));
        let known = std::fs::read_to_string(&file).unwrap_or_default();
        let engines = match known.split_once(' ') {
            Some((host, engines)) if host == own && !info.id.is_empty() => engines.to_owned(),
            _ => {
                let engines = boot_id_in_container(engine).await?;
                // It is only asked again if it cannot be kept.
                let text = format!("{own} {engines}");
                let _ = write_atomically(&file, text.as_bytes(), FileAccess::Private);
                engines
            }
        };
        Ok(Self::because(if engines == own {
            SealReason::SameKernel
        } else {
            SealReason::OtherBoot
        }))
    }
}

/// The boot id of this host, if it has one.
fn own_boot_id() -> Option<String> {
    let text = std::fs::read_to_string(BOOT_ID).ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The id of an engine, as a part of a file name.
fn file_name(id: &str) -> String {
    id.chars().filter(char::is_ascii_alphanumeric).take(80).collect()
}

/// The boot id that a container sees. The container removes itself if this process is killed.
async fn boot_id_in_container(engine: &Engine) -> Result<String, EngineError> {
    let spec = ContainerSpec {
        name: format!("ralph-kernel-{:016x}", fastrand::u64(..)),
        image: holder::image(engine).await?,
        command: [GUEST, "boot-id"].map(str::to_owned).to_vec(),
        user: "0:0".to_owned(),
        work_dir: PathBuf::from("/"),
        env: BTreeMap::new(),
        labels: BTreeMap::new(),
        mounts: Vec::new(),
        shared_dir: None,
        shared_dir_of: None,
        in_memory: BTreeMap::new(),
        limits: ContainerLimits {
            memory_bytes: Some(MEMORY),
            cpu_millis: None,
            pids: Some(PIDS),
        },
        network: ContainerNetwork::Isolated { dns: None },
        seccomp: None,
        manages_network: false,
        removes_itself: true,
    };
    let container = engine.create_container(&spec).await?;
    let printed = async {
        engine.start_container(&container).await?;
        first_line(engine, &container).await
    }
    .await;
    engine.remove_container(&container).await?;
    printed
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
