//! Creates the containers of a sandbox.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::super::error::warn_not_removed;
use super::super::sandbox_dir::{SandboxDir, SandboxRecord};
use super::super::{SandboxError, SandboxErrorKind, SandboxSpec};
use super::backend::{EngineHost, NetworkMode};
use super::container::{self, ContainerParts, label};
use super::engine_failed_for;
use super::sandbox::DockerSandbox;
use super::seal::{SealError, holder, report_step};
use super::workspace::{self, WorkspacePlace};
use crate::engine::{Container, ContainerNetwork, EngineError, LimitKind};
use crate::text::error_chain;

/// How long a failed creation waits for an engine that restarts, to remove what it created.
const ENGINE_RESTART: Duration = Duration::from_secs(30);
/// The pause between two attempts meanwhile.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Creates and starts a sandbox, and verifies that its network is sealed. `None` if the engine has a container with the
/// same name already. Removes all containers again if anything fails.
pub(super) async fn create(
    host: &EngineHost,
    dir: &SandboxDir,
    spec: &SandboxSpec,
    record: &SandboxRecord,
) -> Result<Option<DockerSandbox>, SandboxError> {
    if let Some(mount) = spec.mounts.first().filter(|_| host.is_remote) {
        return Err(workspace::unseen_mount(&host.engine, &mount.source));
    }
    refuse_ignored_limits(host, spec)?;
    let created = create_containers(host, dir, spec, record).await;
    if created.is_err() {
        warn_not_removed(&dir.name(), remove_created(host, dir, record).await);
    }
    match created {
        Err(error) if matches!(error.cause(), Some(EngineError::Conflict { .. })) => Ok(None),
        created => created.map(Some),
    }
}

/// Removes the containers that were created with this record. A restarting engine keeps them, even one whose creation it never
/// confirmed, and this process may not create another sandbox for a long time.
async fn remove_created(
    host: &EngineHost,
    dir: &SandboxDir,
    record: &SandboxRecord,
) -> Result<(), SandboxError> {
    let owner = record.owner.to_json();
    let ours = |container: &Container| container.labels.get(label::OWNER) == Some(&owner);
    let removed = async {
        let mut is_first = true;
        loop {
            match host.remove_containers(dir, ours).await {
                Err(error) if is_unreachable(&error) => {
                    if is_first {
                        let seconds = ENGINE_RESTART.as_secs();
                        tracing::warn!(sandbox = dir.name(), error = %error_chain(&error), "waiting up to {seconds} s to remove the sandbox");
                    }
                    is_first = false;
                    sleep(RETRY_PAUSE).await;
                }
                removed => return removed,
            }
        }
    };
    timeout(ENGINE_RESTART, removed).await.unwrap_or_else(|_| {
        let message = format!(
            "the container engine did not answer for {} s",
            ENGINE_RESTART.as_secs()
        );
        Err(SandboxError::new(SandboxErrorKind::Unreachable, message))
    })
}

fn is_unreachable(error: &SandboxError) -> bool {
    error.kind() == SandboxErrorKind::Unreachable
}

async fn create_containers(
    host: &EngineHost,
    dir: &SandboxDir,
    spec: &SandboxSpec,
    record: &SandboxRecord,
) -> Result<DockerSandbox, SandboxError> {
    let name = dir.name();
    let failed = |error: EngineError| engine_failed_for(&name, error);
    let unsealed = |error: SealError| error.into_sandbox_error(&name);
    let image = host.image(spec).await?;
    let image = image.ok_or_else(|| SandboxError::missing_image(spec.image.as_deref()))?;
    let labels = container::labels(record, dir);

    let mode = host.network_mode(spec).await?;
    let (network, seal) = match mode {
        NetworkMode::Bridge => (ContainerNetwork::Bridge, None),
        NetworkMode::Disconnected => (ContainerNetwork::Isolated { dns: None }, None),
        NetworkMode::Sealed { plan, transport } => {
            let holder_image = holder::image(&host.engine).await.map_err(failed)?;
            let mut labels = labels.clone();
            labels.insert(label::ROLE.to_owned(), label::HOLDER.to_owned());
            let holder = holder::container(&name, holder_image, &dir.holder_dir(), labels, transport);
            let holder = host.engine.create_container(&holder).await.map_err(failed)?;
            report_step("holder-created", &holder);
            let link = host.holder(dir, holder.clone(), transport);
            let seal = host.seal(dir, spec, &image, plan, link).await;
            (
                ContainerNetwork::SharedWith(holder),
                Some(seal.map_err(unsealed)?),
            )
        }
    };

    // The engine creates the container while the holder sets up its network.
    let parts = ContainerParts {
        labels,
        network,
        guest: host.guest_source(seal.as_ref()),
        for_evidence: record.for_evidence,
    };
    let container = container::container(host, spec, &image, dir, parts);
    let sealed = async {
        match &seal {
            Some(seal) => seal.make_ready().await.map(drop),
            None => Ok(()),
        }
    };
    let (container, sealed) = tokio::join!(host.engine.create_container(&container), sealed);
    let container = container.map_err(failed)?;
    if let Some(seal) = &seal {
        report_step("sandbox-created", seal.holder());
    }
    sealed.map_err(unsealed)?;
    if host.place == WorkspacePlace::Volume {
        let prepared = workspace::prepare_volume(&host.engine, &container, host.user).await;
        prepared.map_err(failed)?;
    }

    let sandbox = host.sandbox(dir, container, Some(spec), seal);
    sandbox.run().await?;
    report_ignored_limits(host, &sandbox);
    Ok(DockerSandbox {
        used: AtomicBool::new(false),
        image: Some(image.to_string()),
        ..sandbox
    })
}

/// Fails if the engine ignores a limit that the user has set.
fn refuse_ignored_limits(host: &EngineHost, spec: &SandboxSpec) -> Result<(), SandboxError> {
    let (limits, defaults) = (&spec.resources, spec.default_limits);
    let setting = host.ignored_limits().iter().find_map(|limit| match limit {
        LimitKind::Memory if !defaults.memory => limits.memory_bytes.map(|_| "sandbox.resources.memory"),
        LimitKind::Processors if !defaults.processors => limits.cpu_millis.map(|_| "sandbox.resources.cpus"),
        LimitKind::Memory | LimitKind::Processors | LimitKind::Processes => None,
    });
    let Some(setting) = setting else {
        return Ok(());
    };
    let message = format!(
        "the engine at {} cannot apply `{setting}`: no control groups are delegated to it",
        host.engine.endpoint()
    );
    Err(SandboxError::new(SandboxErrorKind::Failed, message).with_hint(Some(
        "delegate control groups of version 2 to the user of the engine (see the documentation of rootless engines), or remove \
         the setting: a default that does not apply is only reported",
    )))
}

/// Says which limits the engine ignores.
fn report_ignored_limits(host: &EngineHost, sandbox: &DockerSandbox) {
    if !host.ignored_limits().is_empty() {
        let ignored: Vec<String> = host.ignored_limits().iter().map(ToString::to_string).collect();
        let ignored = ignored.join(", ");
        sandbox.slot.add_notice(format!(
            "the engine cannot limit these of the sandbox: {ignored} (no control groups are delegated to the engine)"
        ));
    }
}
