//! The container that holds a sandbox's network, and the image it is made from: nothing but the guest.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::time::sleep;

use super::SealError;
use super::link::Link;
use crate::engine::{
    Container, ContainerLimits, ContainerMount, ContainerNetwork, ContainerSpec, ContainerState, Digest,
    Engine, EngineError, TarStream,
};
use crate::exec::Discard;
use crate::guest;

/// Where names are asked for inside. Any address would do, since all lead to the gateway; this one is the gateway's
/// own, before the first that stands for a name.
const DNS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// The program, and where it shares a directory with ralph.
const PROGRAM: &str = "guest";
const SHARED: &str = "/run";
/// By which images of ours are known, to `ralph image prune` as well: the hash that the tag is the beginning of.
const HASH_LABEL: &str = "ralph.image.hash";
/// More than enough for one process that waits.
const MEMORY: u64 = 64 << 20;
const PIDS: u32 = 8;

/// The last lines of a holder that ended.
const LOG_LINES: u32 = 5;
/// How often to see whether one that does not answer still runs.
const LOOK: Duration = Duration::from_millis(250);

/// The holder of one sandbox's network.
#[derive(Clone, Debug)]
pub(in super::super) struct Holder {
    pub(in super::super) engine: Engine,
    /// Its container, by id.
    pub(in super::super) container: String,
    /// The directory that it shares with ralph.
    pub(in super::super) dir: PathBuf,
}

/// Which network a holder has once it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Ready {
    /// The one that is sealed already.
    Same,
    /// The one it has had since then, as far as the engine can tell.
    Found(Option<Timestamp>),
    /// A new one, which the sandbox has to join.
    New,
}

impl Holder {
    /// Starts it where it does not run.
    pub(super) async fn start(&self) -> Result<Ready, SealError> {
        let found = self.find().await?;
        if found.state == ContainerState::Running {
            return Ok(Ready::Found(found.started));
        }
        self.engine.start_container(&self.container).await?;
        Ok(Ready::New)
    }

    /// A line to it, as soon as it is there.
    pub(super) async fn connect(&self) -> Result<Link, SealError> {
        tokio::select! {
            connected = Link::connect(&self.dir) => connected,
            ended = self.ends() => {
                ended?;
                let log = self.engine.container_log(&self.container, LOG_LINES).await?;
                Err(SealError::Failed(format!("it ended at once: {}", log.trim())))
            }
        }
    }

    /// Returns when it does not run any more.
    async fn ends(&self) -> Result<(), SealError> {
        loop {
            sleep(LOOK).await;
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

/// The holder of a sandbox's network, by the name of the sandbox.
pub(in super::super) fn name(sandbox: &str) -> String {
    format!("{sandbox}-net")
}

/// The container of a holder that shares this directory with ralph.
pub(in super::super) fn container(
    sandbox: &str,
    image: String,
    dir: &Path,
    labels: BTreeMap<String, String>,
) -> ContainerSpec {
    ContainerSpec {
        name: name(sandbox),
        image,
        command: [&format!("/{PROGRAM}"), "hold", SHARED]
            .map(str::to_owned)
            .to_vec(),
        // Capabilities are for the first process only when it is root; it has no other.
        user: "0:0".to_owned(),
        work_dir: PathBuf::from("/"),
        env: BTreeMap::new(),
        labels,
        mounts: vec![ContainerMount {
            source: dir.to_owned(),
            target: PathBuf::from(SHARED),
            read_only: false,
        }],
        in_memory: BTreeMap::new(),
        limits: ContainerLimits {
            memory_bytes: Some(MEMORY),
            cpu_millis: None,
            pids: Some(PIDS),
        },
        network: ContainerNetwork::Isolated { dns: Some(DNS) },
        manages_network: true,
    }
}

/// The image of holders, which the engine is given when it has none.
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

/// Writes what `docker load` reads.
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
    append(&mut tar, PROGRAM, 0o111, program)?;
    tar.into_inner()
}

fn append<W: Write>(tar: &mut tar::Builder<W>, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, name, bytes)
}
