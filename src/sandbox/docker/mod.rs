//! The `docker` provider: each sandbox is a container of a Docker Engine, with no capability, no way to gain one, and
//! nothing of the host in it but its workspace.

mod census;
mod disk;
mod door;
mod ground;
mod maker;
mod opener;
mod plain;
mod plan;
mod proxy;
mod sandbox;
mod seal;
mod trust;
mod unshared;
mod user;

use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use tokio::sync::OnceCell;

use self::census::Census;
use self::ground::{Closing, Containers, Ground, Manner};
use self::maker::Maker;
use self::plan::Facts;
pub(super) use self::proxy::variables as proxy_variables;
use self::sandbox::DockerSandbox;
use self::seal::Seal;
pub use self::seal::{SealError, SealPlan, SealStep};
pub use self::unshared::Unshared;
use super::name::names;
use super::owner::Owner;
use super::place::{Place, Record};
use super::{
    Capabilities, CredentialRoute, Enforced, Isolation, Listed, NetworkEnforcement, Provider, Removable,
    Reuse, Sandbox, SandboxError, SandboxErrorKind, SandboxSpec,
};
use crate::engine::{Digest, EngineEnvironment, EngineError};
use crate::exec::Host;

const NAME: &str = "docker";

/// What the provider needs to know.
#[derive(Clone, Debug)]
pub struct DockerOptions {
    /// The directory below which each sandbox gets one of its own.
    pub base: PathBuf,
    /// By which the engine is found.
    pub surroundings: EngineEnvironment,
    /// Starts the few programs that are needed beside the engine's API.
    pub host: Host,
    /// The directory for the guest's file, which every container sees.
    pub guest_dir: PathBuf,
    /// The directory for what was read of images, and can be read again.
    pub cache: PathBuf,
    /// What this machine is called.
    pub machine: String,
}

/// Makes sandboxes that are containers. The engine is looked for when it is first needed.
#[derive(Debug)]
pub struct DockerProvider {
    options: DockerOptions,
    owner: Owner,
    ground: OnceCell<Ground>,
}

impl DockerProvider {
    /// A provider that keeps its workspaces below `options.base`.
    #[must_use]
    pub fn new(options: DockerOptions) -> Self {
        Self {
            owner: Owner::this_process(&options.machine),
            options,
            ground: OnceCell::new(),
        }
    }

    async fn ground(&self) -> Result<&Ground, SandboxError> {
        self.ground
            .get_or_try_init(|| Ground::prepare(&self.options))
            .await
    }

    fn record(&self, spec: &SandboxSpec, facts: &Facts<'_>) -> Record {
        Record {
            run: spec.run.clone(),
            task: spec.purpose.task.clone(),
            fingerprint: plan::fingerprint(spec, facts),
            owner: self.owner.clone(),
        }
    }

    /// The places that have a record.
    fn known(&self) -> Result<Vec<(Place, Record)>, SandboxError> {
        let places = Place::all(&self.options.base)
            .map_err(|source| SandboxError::host("list", &self.options.base, source))?;
        Ok(places
            .into_iter()
            .filter_map(|place| Some((place.clone(), place.record()?)))
            .collect())
    }

    async fn census(&self) -> Result<Census<'_>, SandboxError> {
        Ok(Census {
            engine: &self.ground().await?.engine,
            base: &self.options.base,
            here: &self.owner,
        })
    }

    /// Removes what a process left that was killed, in the midst of its work or of making the sandbox: whoever ends in peace
    /// puts its sandbox to rest.
    async fn sweep(&self) -> Result<(), SandboxError> {
        let census = self.census().await?;
        for found in census.take().await? {
            if !found.is_restless() {
                continue;
            }
            // One that another user of this machine left is that user's to remove.
            if let Err(error) = census.remove(&found, Removable::Orphans).await {
                tracing::warn!(sandbox = found.listed.id, %error, "an orphan could not be removed");
            }
        }
        Ok(())
    }

    /// Makes a sandbox under the first of its names that nobody has.
    async fn make(&self, spec: &SandboxSpec, facts: &Facts<'_>) -> Result<DockerSandbox, SandboxError> {
        let mut taken = None;
        for name in names(spec, &self.options.base) {
            let place = Place::of(&self.options.base, &name);
            match self.make_at(&place, spec, facts).await {
                Err(error) if is_taken(&error) => taken = Some(error),
                made => return made,
            }
        }
        Err(taken.unwrap_or_else(|| SandboxError::unavailable(NAME, "no name is free")))
    }

    async fn make_at(
        &self,
        place: &Place,
        spec: &SandboxSpec,
        facts: &Facts<'_>,
    ) -> Result<DockerSandbox, SandboxError> {
        let ground = self.ground().await?;
        place
            .make(&self.record(spec, facts), facts.agent.outside)
            .map_err(|source| on_host("make", place, source))?;
        let maker = Maker { ground, spec, facts };
        let made = maker.make(place).await;
        if made.is_err() {
            place
                .remove()
                .map_err(|source| on_host("remove", place, source))?;
        }
        made
    }

    /// Takes over what an earlier run of the same task left, made from the same, in nobody's hands.
    async fn take_over(
        &self,
        spec: &SandboxSpec,
        facts: &Facts<'_>,
    ) -> Result<Option<DockerSandbox>, SandboxError> {
        let ground = self.ground().await?;
        let fingerprint = plan::fingerprint(spec, facts);
        for (place, record) in self.known()? {
            let fits = record.task == spec.purpose.task && record.fingerprint == fingerprint;
            if !fits || !record.owner.is_dead(&self.owner) {
                continue;
            }
            let taken = place
                .claim(&record, &self.record(spec, facts))
                .map_err(|source| on_host("take over", &place, source))?;
            if !taken {
                continue;
            }
            if let Some(sandbox) = self.at(&place, spec, facts.image).await? {
                match sandbox.start().await {
                    Ok(()) => return Ok(Some(sandbox)),
                    Err(error) => {
                        tracing::warn!(sandbox = sandbox.id(), %error, "a sandbox could not be used again");
                    }
                }
            }
            ground.discard(&place).await?;
        }
        Ok(None)
    }

    /// The sandbox at a place, if all that belongs to it is there. Its network is closed until it is started.
    async fn at(
        &self,
        place: &Place,
        spec: &SandboxSpec,
        image: &Digest,
    ) -> Result<Option<DockerSandbox>, SandboxError> {
        let ground = self.ground().await?;
        let Containers { sandbox, holder } = ground.containers_at(place).await?;
        let Some(container) = sandbox else {
            return Ok(None);
        };
        let closing = ground.closing(spec).map_err(|error| unsealed(place, error))?;
        let seal = match (closing, holder) {
            (Closing::Open | Closing::Shut, _) => None,
            (Closing::Sealed(plan), Some(holder))
                if container.shares_network_of.as_ref() == Some(&holder.id) =>
            {
                let inspection = ground.inspection(spec, image, place).await;
                let inspection = inspection.map_err(|error| unsealed(place, error))?;
                let holder = ground.holder(place, holder.id);
                Some(Seal::new(holder, plan, &spec.egress, inspection))
            }
            (Closing::Sealed(_), _) => return Ok(None),
        };
        let manner = Manner::of(spec, seal.as_ref());
        let opened = ground.open(place.clone(), container.id, manner);
        Ok(Some(opened.limited_to(spec.resources.disk_bytes).sealed(seal)))
    }
}

#[async_trait]
impl Provider for DockerProvider {
    fn name(&self) -> &'static str {
        NAME
    }

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
        self.ground().await.map(drop)
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let ground = self.ground().await?;
        let image = ground.image(spec).await?;
        let facts = ground.facts(&image, &self.owner);
        if let Some((place, _)) = self.known()?.into_iter().find(|(_, known)| known.run == spec.run) {
            return Err(on_host("make", &place, io::ErrorKind::AlreadyExists.into()));
        }
        let found = match spec.reuse {
            Reuse::Allowed => self.take_over(spec, &facts).await?,
            Reuse::Never => None,
        };
        if let Some(found) = found {
            return Ok(Box::new(found));
        }
        self.sweep().await?;
        let made = self.make(spec, &facts).await?;
        Ok(Box::new(made.fresh()))
    }

    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let ground = self.ground().await?;
        let Some((place, record)) = self.known()?.into_iter().find(|(_, known)| known.run == spec.run) else {
            return Ok(None);
        };
        let image = match ground.image(spec).await {
            Ok(image) => Some(image),
            // What can no longer be made is not what is asked for.
            Err(error) if error.cause().is_some_and(is_not_found) => None,
            Err(error) => return Err(error),
        };
        let fitting = image
            .filter(|image| record.fingerprint == plan::fingerprint(spec, &ground.facts(image, &self.owner)));
        let found = match &fitting {
            Some(image) => self.at(&place, spec, image).await?,
            None => None,
        };
        let Some(sandbox) = found else {
            ground.discard(&place).await?;
            return Ok(None);
        };
        let taken = Record {
            owner: self.owner.clone(),
            ..record
        };
        place
            .write(&taken)
            .map_err(|source| on_host("take over", &place, source))?;
        Ok(Some(Box::new(sandbox)))
    }

    async fn list(&self) -> Result<Vec<Listed>, SandboxError> {
        let found = self.census().await?.take().await?;
        Ok(found.into_iter().map(|found| found.listed).collect())
    }

    async fn attach(&self, id: &str) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let ground = self.ground().await?;
        let found = self.census().await?.take().await?;
        let found = found.into_iter().find(|found| found.listed.id == id);
        let found = found.and_then(|found| Some((found.place, found.container?)));
        Ok(found.map(|(place, container)| -> Box<dyn Sandbox> {
            // Its network is in the hands of whoever has it.
            Box::new(ground.open(place, container, Manner::default()))
        }))
    }

    async fn remove(&self, id: &str, removable: Removable) -> Result<bool, SandboxError> {
        let census = self.census().await?;
        let found = census.take().await?;
        match found.iter().find(|found| found.listed.id == id) {
            Some(found) => census.remove(found, removable).await,
            None => Ok(false),
        }
    }
}

/// Whether somebody else has the name.
fn is_taken(error: &SandboxError) -> bool {
    let exists = |cause: &io::Error| cause.kind() == io::ErrorKind::AlreadyExists;
    error.cause().is_some_and(exists) || matches!(error.cause(), Some(EngineError::Conflict { .. }))
}

fn is_not_found(error: &EngineError) -> bool {
    matches!(error, EngineError::NotFound { .. })
}

fn on_host(operation: &'static str, place: &Place, source: io::Error) -> SandboxError {
    SandboxError::host(operation, &place.workspace(), source)
}

fn failed(sandbox: &str, source: EngineError) -> SandboxError {
    let (kind, hint) = (engine_kind(&source), source.hint());
    let message = format!("the container engine failed for the sandbox `{sandbox}`");
    SandboxError::new(kind, message)
        .with_cause(source)
        .with_hint(hint)
}

/// An error of the engine that concerns no sandbox.
fn engine_failed(source: EngineError) -> SandboxError {
    let hint = source.hint();
    SandboxError::from_cause(engine_kind(&source), source).with_hint(hint)
}

fn engine_kind(error: &EngineError) -> SandboxErrorKind {
    if error.is_unreachable() {
        SandboxErrorKind::Unreachable
    } else {
        SandboxErrorKind::Failed
    }
}

fn unsealed(place: &Place, source: SealError) -> SandboxError {
    source.into_sandbox_error(&place.name())
}
