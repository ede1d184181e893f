//! The holder: the container that owns the network of a sealed sandbox. Its image contains only the guest program.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::time::sleep;

use super::super::container::GUEST;
use super::super::{inspection, install_file};
use super::holder_connection::HolderConnection;
use super::relay::RelayConnection;
use super::{HolderLink, SealError, SealTransport};
use crate::engine::{
    Container, ContainerLimits, ContainerMount, ContainerNetwork, ContainerSpec, ContainerState,
    ContainerVolume, Digest, Engine, EngineError, ExecSpec, ReadOnlyFiles, TarStream,
};
use crate::exec::Discard;
use crate::guest;

/// The DNS server of the sandbox. Any address would do, since all lead to the gateway. This one is never used as the
/// address of a name.
const DNS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// The directory of the guest program in the image, and in sandboxes that see that of their holder.
const GUEST_DIR: &str = "/.ralph";
/// The directory that a holder shares with ralph.
const SHARED: &str = "/run";
/// The label of all images of ralph, also used by `ralph image prune`. The tag is a prefix of its value.
const HASH_LABEL: &str = "ralph.image.hash";
/// Limits of the holder: one waiting process, and where connections are relayed a process with their buffers.
const MEMORY: u64 = 64 << 20;
const RELAY_MEMORY: u64 = 256 << 20;
const PIDS: u32 = 8;

/// How many lines of the log of an ended holder an error message shows.
const LOG_LINES: u32 = 5;
/// How often to check whether a holder that does not respond still runs.
const STATE_POLL: Duration = Duration::from_millis(250);

/// The holder of one sandbox.
#[derive(Clone, Debug)]
pub(in super::super) struct Holder {
    pub(super) engine: Engine,
    /// The id of its container.
    pub(super) container: String,
    /// The directory that it shares with ralph, if it hands over its sockets.
    pub(super) dir: PathBuf,
    pub(super) transport: SealTransport,
}

impl Holder {
    /// Starts the holder unless it runs. Returns since when it runs, if the engine knows.
    pub(super) async fn start(&self) -> Result<Option<Timestamp>, SealError> {
        let mut found = self.find().await?;
        if let Some(whose) = found.shares_processes_of {
            return Err(SealError::SharedProcesses(whose));
        }
        if found.state != ContainerState::Running {
            self.engine.start_container(&self.container).await?;
            found = self.find().await?;
        }
        Ok(found.started)
    }

    /// Connects to the holder once it listens.
    pub(super) async fn connect(&self) -> Result<HolderLink, SealError> {
        let connecting = async {
            match self.transport {
                SealTransport::Handed => HolderConnection::open(&self.dir).await.map(HolderLink::Handed),
                SealTransport::Relayed => self.open_relay().await.map(HolderLink::Relayed),
            }
        };
        tokio::select! {
            connected = connecting => connected,
            ended = self.wait_for_end() => {
                ended?;
                let log = self.engine.container_log(&self.container, LOG_LINES).await?;
                Err(SealError::Failed(format!("it exited immediately: {}", log.trim())))
            }
        }
    }

    /// Starts a relay beside the holder. The first request to it ends one that another ralph started.
    async fn open_relay(&self) -> Result<RelayConnection, SealError> {
        let spec = ExecSpec {
            argv: [GUEST, "relay"].map(str::to_owned).to_vec(),
            env: BTreeMap::new(),
            cwd: None,
            stdin: true,
        };
        let mut exec = self.engine.exec(&self.container, &spec).await?;
        let no_stdin = || EngineError::invalid_response(&self.container, "the exec has no standard input");
        let to_relay = exec.stdin.take().ok_or_else(no_stdin)?;
        RelayConnection::open(exec.into_stdout(), to_relay).await
    }

    /// Returns when the holder does not run any more.
    async fn wait_for_end(&self) -> Result<(), SealError> {
        loop {
            sleep(STATE_POLL).await;
            if self.find().await?.state != ContainerState::Running {
                return Ok(());
            }
        }
    }

    async fn find(&self) -> Result<Container, SealError> {
        let found = self.engine.container(&self.container).await?;
        found.ok_or(SealError::HolderEnded)
    }
}

/// The name of the container of a holder.
pub(in super::super) fn name(sandbox: &str) -> String {
    format!("{sandbox}-net")
}

/// Writes a file that names the DNS server of sandboxes into this directory. Podman gives a container without a network no
/// such file, and so none to those that share its network either.
pub(in super::super) fn install_resolver(dir: &Path) -> io::Result<PathBuf> {
    install_file(dir, "resolv.conf", &format!("nameserver {DNS}\nsearch .\n"))
}

/// The container of a holder. `dir` is the host directory that it shares with ralph, if it hands over its sockets.
/// Otherwise it shares the guest program with the sandbox.
pub(in super::super) fn container(
    sandbox: &str,
    image: String,
    dir: &Path,
    labels: BTreeMap<String, String>,
    transport: SealTransport,
) -> ContainerSpec {
    let (command, shared, memory) = match transport {
        SealTransport::Handed => (vec![GUEST, "hold", SHARED], Some(dir), MEMORY),
        SealTransport::Relayed => (vec![GUEST, "hold"], None, RELAY_MEMORY),
    };
    let mount = |dir: &Path| ContainerMount {
        source: dir.to_owned(),
        target: PathBuf::from(SHARED),
        read_only: false,
    };
    ContainerSpec {
        name: name(sandbox),
        image,
        command: command.into_iter().map(str::to_owned).collect(),
        // Only root gets the capabilities of the container.
        user: "0:0".to_owned(),
        work_dir: PathBuf::from("/"),
        env: BTreeMap::new(),
        labels,
        mounts: shared.into_iter().map(mount).collect(),
        volume: (transport == SealTransport::Relayed).then(|| ContainerVolume {
            target: PathBuf::from(GUEST_DIR),
            copies_image: true,
        }),
        volume_of: None,
        in_memory: BTreeMap::new(),
        limits: ContainerLimits {
            memory_bytes: Some(memory),
            cpu_millis: None,
            pids: Some(PIDS),
        },
        network: ContainerNetwork::Isolated { dns: Some(DNS) },
        seccomp: None,
        // A runtime with a kernel of its own has no firewall that the sandbox would share.
        runtime: None,
        read_only: ReadOnlyFiles::Root,
        manages_network: true,
        removes_itself: false,
    }
}

/// The image of holders. It is loaded into the engine if it is missing.
pub(in super::super) async fn image(engine: &Engine) -> Result<String, EngineError> {
    let tag = format!("v{:08x}", guest::VERSION >> 32);
    let name = format!("agent-loop-sandbox-holder:{tag}");
    if engine.image(&name).await?.is_none() {
        let (named, arch) = (name.clone(), engine.arch().to_owned());
        let tar = TarStream::written_by(move |out| write_image(out, &named, &arch));
        engine.load(&name, tar, &mut Discard).await?;
    }
    Ok(name)
}

/// Writes an archive for `docker load`.
fn write_image(out: &mut dyn Write, name: &str, arch: &str) -> io::Result<()> {
    let layer = layer()?;
    let config = json!({
        "architecture": arch,
        "os": "linux",
        "config": { "Labels": { HASH_LABEL: format!("{:016x}", guest::VERSION) } },
        "rootfs": { "type": "layers", "diff_ids": [Digest::sha256(&layer).to_string()] },
    });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let mut tar = tar::Builder::new(out);
    append(&mut tar, "layer.tar", 0o644, &layer)?;
    append(&mut tar, "config.json", 0o644, config.to_string().as_bytes())?;
    append(&mut tar, "manifest.json", 0o644, manifest.to_string().as_bytes())?;
    tar.finish()
}

fn layer() -> io::Result<Vec<u8>> {
    let program = guest::PROGRAM.ok_or(io::ErrorKind::NotFound)?;
    let mut tar = tar::Builder::new(Vec::new());
    // A sandbox may have another mount below the directory of the guest.
    for dir in [GUEST_DIR, inspection::DIRECTORY] {
        append_dir(&mut tar, dir.trim_start_matches('/'))?;
    }
    append(&mut tar, GUEST.trim_start_matches('/'), 0o111, program)?;
    tar.into_inner()
}

fn append<W: Write>(tar: &mut tar::Builder<W>, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, name, bytes)
}

fn append_dir<W: Write>(tar: &mut tar::Builder<W>, name: &str) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_size(0);
    tar.append_data(&mut header, name, io::empty())
}
