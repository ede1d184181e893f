//! The container engine as the backend of a provider.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::super::error::warn_not_removed;
use super::super::files::{FileOwner, WorkspaceFiles};
use super::super::guest_file::{self, GuestFile};
use super::super::lifecycle::Lifecycle;
use super::super::owner::Owner;
use super::super::sandbox_dir::{SandboxDir, SandboxRecord};
use super::super::session_slot::SessionSlot;
use super::super::workspace_provider::{FoundSandbox, Instance, WorkspaceBackend};
use super::super::{
    Capabilities, CredentialRoute, Enforced, Isolation, NetworkEnforcement, SandboxActivity, SandboxError,
    SandboxErrorKind, SandboxSpec,
};
use super::container::{self, GuestSource, ROOT, label};
use super::create;
use super::disk::DiskWatch;
use super::exec::ContainerCommands;
use super::kernel::{ChosenSeal, KernelProbe, SealChoice};
use super::sandbox::DockerSandbox;
use super::seal::holder;
use super::seal::{Seal, SealError, SealPlan, SealTransport};
use super::seccomp;
use super::user::AgentUser;
use super::workspace::{self, WorkspacePlace};
use super::{DockerOptions, engine_failed, engine_failed_for};
use crate::clock::Clock;
use crate::engine::{
    Container, ContainerState, Digest, Engine, EngineInfo, EngineKind, LimitKind, SeccompProfile,
};
use crate::id::RunId;
use crate::network::PolicyMode;

const NAME: &str = "docker";

/// Containers of an engine, which is connected when it is first needed.
pub(super) struct DockerBackend {
    options: DockerOptions,
    host: OnceCell<EngineHost>,
}

/// A connected engine, and what is the same for all of its sandboxes.
pub(super) struct EngineHost {
    pub(super) engine: Engine,
    /// How many processors the engine has.
    pub(super) processors: u32,
    pub(super) user: AgentUser,
    /// Where workspaces are.
    pub(super) place: WorkspacePlace,
    /// Whether its containers can see nothing of this host.
    pub(super) is_remote: bool,
    pub(super) guest: GuestFile,
    /// The filter of system calls of all containers.
    pub(super) seccomp: SeccompProfile,
    /// The OCI runtime of sandboxes. `None` is the engine's default.
    pub(super) runtime: Option<String>,
    /// The file that names the DNS server of sealed sandboxes, if the engine does not write one.
    pub(super) resolver: Option<PathBuf>,
    /// The directory that caches files of images.
    pub(super) cache: PathBuf,
    info: EngineInfo,
    choice: SealChoice,
    /// Found out when it is first needed.
    chosen_seal: OnceCell<ChosenSeal>,
    /// Where the engine stores its containers, if this host can see it.
    data_dir: Option<PathBuf>,
    pub(super) clock: Arc<dyn Clock>,
    /// This process.
    owner: Owner,
}

/// What a container is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NetworkMode {
    /// The engine's bridge, because the policy allows everything.
    Bridge,
    /// Nothing.
    Disconnected,
    /// The network of a holder.
    Sealed {
        plan: SealPlan,
        transport: SealTransport,
    },
}

impl NetworkMode {
    /// How a sealed network is connected to the gateway.
    pub(super) fn transport(&self) -> Option<SealTransport> {
        match self {
            Self::Bridge | Self::Disconnected => None,
            Self::Sealed { transport, .. } => Some(*transport),
        }
    }
}

impl DockerBackend {
    pub(super) fn new(options: DockerOptions) -> Self {
        Self {
            options,
            host: OnceCell::new(),
        }
    }

    async fn host(&self) -> Result<&EngineHost, SandboxError> {
        self.host
            .get_or_try_init(|| EngineHost::connect(&self.options))
            .await
    }
}

impl EngineHost {
    async fn connect(options: &DockerOptions) -> Result<Self, SandboxError> {
        let engine = Engine::connect(&options.engine, &options.host).await;
        let engine = engine.map_err(engine_failed)?;
        let info = engine.info().await.map_err(engine_failed)?;
        if let Some(runtime) = &options.runtime {
            check_runtime(runtime, &info)?;
        }
        let is_remote = engine.endpoint().is_remote();
        if is_remote && info.kind == EngineKind::Podman {
            return Err(workspace::remote_podman(&engine));
        }
        let place = WorkspacePlace::choose(options.workspace, engine.endpoint(), info.users)?;
        Ok(Self {
            runtime: options.runtime.clone(),
            user: AgentUser::new(info.users, place)?,
            place,
            is_remote,
            // The file server of a VM runs as the user, who may not read the guest's file.
            guest: if is_remote {
                Err("the engine is on another host")
            } else if info.has_other_kernel {
                Err("the engine runs in a VM")
            } else {
                guest_file::install(&options.guest_dir, &info.arch)?
            },
            seccomp: seccomp::install(&options.guest_dir).map_err(|error| {
                SandboxError::host("write the seccomp profile into", &options.guest_dir, error)
            })?,
            resolver: match info.kind {
                EngineKind::Docker => None,
                EngineKind::Podman => {
                    let installed = holder::install_resolver(&options.guest_dir);
                    Some(installed.map_err(|error| {
                        SandboxError::host("write resolv.conf into", &options.guest_dir, error)
                    })?)
                }
            },
            processors: info.cpus,
            cache: options.cache.clone(),
            data_dir: info.data_dir.clone().filter(|_| !is_remote),
            choice: options.seal,
            chosen_seal: OnceCell::new(),
            clock: options.clock.clone(),
            owner: Owner::this_process(&options.host_name),
            info,
            engine,
        })
    }

    /// How networks are sealed on this engine, and why.
    pub(super) async fn chosen_seal(&self) -> Result<&ChosenSeal, SandboxError> {
        let choosing = || async {
            match self.choice {
                SealChoice::Relayed => Ok(ChosenSeal::configured(SealTransport::Relayed)),
                SealChoice::Handed if self.info.has_other_kernel || self.is_remote => {
                    Err(SealError::OtherKernel.into())
                }
                SealChoice::Handed => Ok(ChosenSeal::configured(SealTransport::Handed)),
                SealChoice::Auto if self.is_remote => Ok(ChosenSeal::on_another_host()),
                SealChoice::Auto => {
                    let probe = self.kernel_probe();
                    Ok(ChosenSeal::by_kernel(probe, &self.info, &self.cache).await)
                }
            }
        };
        self.chosen_seal.get_or_try_init(choosing).await
    }

    fn kernel_probe(&self) -> KernelProbe<'_> {
        KernelProbe {
            engine: &self.engine,
            owner: &self.owner,
            now: self.clock.now(),
        }
    }

    /// The limits that containers of this engine do not have.
    pub(super) fn ignored_limits(&self) -> &[LimitKind] {
        &self.info.ignored_limits
    }

    /// The digest of the image of a spec; `None` if the engine does not have it.
    pub(super) async fn image(&self, spec: &SandboxSpec) -> Result<Option<Digest>, SandboxError> {
        let name = spec.image.as_deref();
        let name = name.ok_or_else(|| SandboxError::unavailable(NAME, "no image is set (sandbox.image)"))?;
        let image = self.engine.image(name).await.map_err(engine_failed)?;
        Ok(image.map(|image| image.id))
    }

    /// How a sandbox is connected under the policy of its spec.
    pub(super) async fn network_mode(&self, spec: &SandboxSpec) -> Result<NetworkMode, SandboxError> {
        let Some(plan) = SealPlan::new(&spec.egress.added.widen(spec.network.clone()))? else {
            return Ok(NetworkMode::Bridge);
        };
        match (guest_file::guest_program(&self.info.arch), spec.network.mode) {
            // Without any network no holder is needed.
            (Err(_), PolicyMode::Deny) => Ok(NetworkMode::Disconnected),
            (Ok(_), _) => Ok(NetworkMode::Sealed {
                plan,
                transport: self.chosen_seal().await?.transport,
            }),
            (Err(reason), _) => Err(SealError::NoGuest(reason).into()),
        }
    }

    /// Where a container with this seal gets the guest program from.
    pub(super) fn guest_source(&self, seal: Option<&Seal>) -> GuestSource {
        match (seal, &self.guest) {
            (Some(seal), _) if seal.transport() == SealTransport::Relayed => {
                GuestSource::Holder(seal.holder().to_owned())
            }
            (_, Ok(file)) => GuestSource::File(file.clone()),
            (_, Err(reason)) => GuestSource::Missing(reason),
        }
    }

    /// The sandbox of a directory, whose container has this id. Without a spec it belongs to another process.
    pub(super) fn sandbox(
        &self,
        dir: &SandboxDir,
        container: String,
        spec: Option<&SandboxSpec>,
        seal: Option<Seal>,
    ) -> DockerSandbox {
        // The explicit proxy is a part of the gateway.
        let egress = spec.filter(|_| seal.is_some()).map(|spec| &spec.egress);
        let egress = egress.filter(|egress| egress.proxy_variables);
        let exec = ContainerCommands {
            engine: self.engine.clone(),
            container,
            proxy: egress.and_then(|egress| egress.phantom.clone()),
        };
        let missing_guest = match self.guest_source(seal.as_ref()) {
            GuestSource::Missing(reason) => Some(reason),
            GuestSource::File(_) | GuestSource::Holder(_) => None,
        };
        let is_shared = self.place == WorkspacePlace::Shared;
        let shared_files = is_shared.then(|| {
            WorkspaceFiles::new(&dir.name(), PathBuf::from(ROOT), dir.workspace(), dir.staging())
                .owned_by(self.user.outside)
        });
        DockerSandbox {
            name: dir.name(),
            image: None,
            disk: DiskWatch::new(
                is_shared.then(|| dir.workspace()),
                exec.clone(),
                self.data_dir.clone(),
                spec.and_then(|spec| spec.resources.disk_bytes),
            ),
            shared_files,
            slot: SessionSlot::new(missing_guest),
            grace: spec.map_or(SandboxSpec::USUAL_GRACE, |spec| spec.completion_grace),
            exec,
            dir: dir.clone(),
            lifecycle: Lifecycle::running(),
            used: AtomicBool::new(true),
            clock: self.clock.clone(),
            runtime: self.runtime.clone().filter(|_| missing_guest.is_none()),
            seal,
        }
    }

    /// The container of this name, if it belongs to this directory.
    async fn container_of(&self, dir: &SandboxDir, name: &str) -> Result<Option<Container>, SandboxError> {
        let found = self.engine.container(name).await;
        let found = found.map_err(|error| engine_failed_for(&dir.name(), error))?;
        Ok(found.filter(|container| dir_of(container).as_ref() == Some(dir)))
    }

    /// Removes the containers of this directory that are `ours`: a host that shares the engine may have a sandbox of the same
    /// path. If one cannot be removed, the other is.
    pub(super) async fn remove_containers(
        &self,
        dir: &SandboxDir,
        ours: impl Fn(&Container) -> bool,
    ) -> Result<(), SandboxError> {
        let mut failed = Ok(());
        for name in [dir.name(), holder::name(&dir.name())] {
            let removed = match self.container_of(dir, &name).await {
                Ok(Some(container)) if ours(&container) => {
                    let removed = self.engine.remove_container(&container.id).await;
                    removed.map_err(|error| engine_failed_for(&dir.name(), error))
                }
                found => found.map(drop),
            };
            failed = failed.and(removed);
        }
        failed
    }
}

#[async_trait]
impl WorkspaceBackend for DockerBackend {
    const NAME: &'static str = NAME;
    const EVIDENCE_APART: bool = true;

    type Sandbox = DockerSandbox;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::Container,
            network: match crate::guest::PROGRAM {
                Some(_) => NetworkEnforcement::Names,
                None => NetworkEnforcement::AllOrNothing,
            },
            resources: Enforced::Yes,
            metering: Enforced::Yes,
            preview: false,
            credentials: CredentialRoute::Gateway,
        }
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.host().await.map(drop)
    }

    async fn seal(&self) -> Result<Option<String>, SandboxError> {
        let host = self.host().await?;
        if guest_file::guest_program(&host.info.arch).is_err() {
            return Ok(None);
        }
        Ok(Some(host.chosen_seal().await?.to_string()))
    }

    async fn file_owner(&self) -> Result<Option<FileOwner>, SandboxError> {
        Ok(self.host().await?.user.outside)
    }

    async fn fingerprint(&self, spec: &SandboxSpec) -> Result<Option<String>, SandboxError> {
        let host = self.host().await?;
        let image = host.image(spec).await?;
        let network = host.network_mode(spec).await?;
        Ok(image.map(|image| container::fingerprint(spec, &image, host, &network)))
    }

    async fn create(
        &self,
        dir: &SandboxDir,
        spec: &SandboxSpec,
        record: &SandboxRecord,
    ) -> Result<Option<DockerSandbox>, SandboxError> {
        let created = async { create::create(self.host().await?, dir, spec, record).await }.await;
        if created.is_err() {
            warn_not_removed(&dir.name(), dir.remove().await);
        }
        created
    }

    async fn open(
        &self,
        dir: &SandboxDir,
        spec: &SandboxSpec,
    ) -> Result<Option<DockerSandbox>, SandboxError> {
        let host = self.host().await?;
        let Some(container) = host.container_of(dir, &dir.name()).await? else {
            return Ok(None);
        };
        let unsealed = |error: SealError| error.into_sandbox_error(&dir.name());
        let seal = match host.network_mode(spec).await? {
            NetworkMode::Bridge | NetworkMode::Disconnected => None,
            NetworkMode::Sealed { plan, transport } => {
                let holder = host.container_of(dir, &holder::name(&dir.name())).await?;
                let holder = holder.filter(|holder| container.shares_network_of.as_ref() == Some(&holder.id));
                let (Some(holder), Some(image)) = (holder, host.image(spec).await?) else {
                    return Ok(None);
                };
                let holder = host.holder(dir, holder.id, transport);
                let seal = host.seal(dir, spec, &image, plan, holder).await;
                Some(seal.map_err(unsealed)?)
            }
        };
        Ok(Some(DockerSandbox {
            // Its containers are created from the digest of their image.
            image: Some(container.image),
            ..host.sandbox(dir, container.id, Some(spec), seal)
        }))
    }

    async fn attach(&self, found: &FoundSandbox) -> Result<Option<DockerSandbox>, SandboxError> {
        let host = self.host().await?;
        let instance = found.instance.as_ref();
        let instance = instance.filter(|instance| instance.activity != SandboxActivity::Removed);
        let container = instance.and_then(|instance| instance.ids.first());
        Ok(container.map(|container| host.sandbox(&found.dir, container.clone(), None, None)))
    }

    async fn instances(&self, _dirs: &[SandboxDir]) -> Result<Vec<Instance>, SandboxError> {
        let containers = self.host().await?.engine.containers(label::RUN).await;
        let mut by_dir: BTreeMap<SandboxDir, Vec<Container>> = BTreeMap::new();
        for container in containers.map_err(engine_failed)? {
            if let Some(dir) = dir_of(&container) {
                by_dir.entry(dir).or_default().push(container);
            }
        }
        Ok(by_dir
            .into_iter()
            .filter_map(|(dir, parts)| instance(dir, parts))
            .collect())
    }

    async fn remove_at(&self, dir: &SandboxDir) -> Result<(), SandboxError> {
        let data_dir = dir.base_id_here()?;
        let ours = |found: &Container| container::may_be_in_data_dir(found, data_dir.as_deref());
        self.host().await?.remove_containers(dir, ours).await
    }

    async fn remove(&self, instance: &Instance) -> Result<(), SandboxError> {
        for container in &instance.ids {
            let removed = self.host().await?.engine.remove_container(container).await;
            removed.map_err(|error| engine_failed_for(&instance.name, error))?;
        }
        Ok(())
    }

    async fn remove_abandoned_probes(&self) -> Result<(), SandboxError> {
        let removed = self.host().await?.kernel_probe().remove_abandoned().await;
        removed.map_err(engine_failed)
    }
}

/// Fails if the containers of this engine cannot be run by this OCI runtime.
fn check_runtime(runtime: &str, info: &EngineInfo) -> Result<(), SandboxError> {
    let failed = |message: String, hint: &'static str| {
        Err(SandboxError::new(SandboxErrorKind::Failed, message).with_hint(Some(hint)))
    };
    match info.kind {
        EngineKind::Podman => failed(
            format!("sandbox.docker.runtime is `{runtime}`, but podman chooses no runtime by container"),
            "set `runtime` in containers.conf of podman instead, and remove sandbox.docker.runtime",
        ),
        EngineKind::Docker if info.runtimes.contains(runtime) => Ok(()),
        EngineKind::Docker => {
            let known: Vec<&str> = info.runtimes.iter().map(String::as_str).collect();
            failed(
                format!(
                    "the engine has no runtime `{runtime}` (sandbox.docker.runtime); it has: {}",
                    known.join(", ")
                ),
                "add it to `runtimes` in daemon.json of the engine and restart that, or correct sandbox.docker.runtime",
            )
        }
    }
}

/// The sandbox whose directory these containers belong to: its own and its holder, or the holder alone if that is left.
fn instance(dir: SandboxDir, mut containers: Vec<Container>) -> Option<Instance> {
    containers.sort_by_key(is_holder);
    let is_running =
        |container: &Container| matches!(container.state, ContainerState::Running | ContainerState::Paused);
    let was_interrupted = containers
        .iter()
        .all(|container| container.state == ContainerState::Created);
    let first = containers.first()?;
    let run = first.labels.get(label::RUN);
    Some(Instance {
        name: first.name.clone(),
        dir,
        activity: match (is_holder(first), is_running(first)) {
            (true, _) => SandboxActivity::Removed,
            (false, true) => SandboxActivity::Running,
            (false, false) => SandboxActivity::Stopped,
        },
        needs_sweep: containers.iter().any(is_running) || was_interrupted,
        image: (!is_holder(first)).then(|| first.image.clone()),
        created: first.created,
        creator: (
            run.and_then(|run| RunId::parse(run).ok()),
            container::creator(first),
        ),
        ids: containers.iter().map(|container| container.id.clone()).collect(),
    })
}

fn is_holder(container: &Container) -> bool {
    container.labels.get(label::ROLE).map(String::as_str) == Some(label::HOLDER)
}

fn dir_of(container: &Container) -> Option<SandboxDir> {
    SandboxDir::from_workspace(container.labels.get(label::WORKSPACE)?.as_ref())
}
