//! What every sandbox of one provider stands on: the engine, its image, the agent's user and the guest.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::super::files::Files;
use super::super::guest::Guest;
use super::super::owner::Owner;
use super::super::place::Place;
use super::super::shelf::Shelf;
use super::super::warm::Warm;
use super::super::{SandboxError, SandboxSpec};
use super::opener::ByExec;
use super::plain::Plain;
use super::plan::{Facts, ROOT, label};
use super::sandbox::DockerSandbox;
use super::seal::holder::{self, Holder};
use super::seal::{Seal, SealError, SealPlan};
use super::unshared::Unshared;
use super::user::Agent;
use super::{DockerOptions, NAME, engine_failed, failed, on_host, proxy};
use crate::engine::{Container, Digest, Engine, EngineEndpoint, EngineError};
use crate::gateway::Phantom;
use crate::network::PolicyMode;

/// As many open files as are ever needed.
const MOST_FILES: u64 = 65_536;

/// What every sandbox stands on.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) engine: Engine,
    processors: u32,
    agent: Agent,
    guest: Guest,
    /// Where what was read of images is kept.
    pub(super) cache: PathBuf,
    is_docker_desktop: bool,
    /// Where the engine keeps its containers.
    directory: Option<PathBuf>,
}

/// How a sandbox's network is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// Not at all: everything is allowed.
    Open,
    /// There is none.
    Shut,
    /// By a holder, so.
    Sealed(SealPlan),
}

/// How commands are run in a sandbox.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    /// How long a command that has ended may be kept waiting.
    grace: Duration,
    /// Whom the explicit proxy serves, where commands are told of it.
    proxy: Option<Phantom>,
}

impl Default for Manner {
    /// As by somebody who looks into a sandbox of another's.
    fn default() -> Self {
        Self {
            grace: SandboxSpec::USUAL_GRACE,
            proxy: None,
        }
    }
}

impl Manner {
    /// As a sandbox is asked for, whose network has such a seal.
    pub(super) fn of(spec: &SandboxSpec, seal: Option<&Seal>) -> Self {
        Self {
            grace: spec.completion_grace,
            proxy: seal.and_then(|_| proxy::told(&spec.egress)),
        }
    }
}

/// The containers at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Containers {
    pub(super) sandbox: Option<Container>,
    pub(super) holder: Option<Container>,
}

impl Ground {
    /// Finds the engine, and what it needs to know of it.
    pub(super) async fn prepare(options: &DockerOptions) -> Result<Self, SandboxError> {
        let engine = Engine::connect(&options.surroundings, &options.host).await;
        let engine = engine.map_err(engine_failed)?;
        if !matches!(engine.endpoint(), EngineEndpoint::Unix(_)) {
            let endpoint = engine.endpoint().to_string();
            return Err(Unshared::Remote { endpoint }.into());
        }
        let info = engine.info().await.map_err(engine_failed)?;
        allow_many_files();
        let dir = &options.guest_dir;
        Ok(Self {
            agent: Agent::on(info.users)?,
            guest: Guest::put(dir, &info.arch)
                .map_err(|source| SandboxError::host("write the guest to", dir, source))?,
            processors: info.cpus,
            cache: options.cache.clone(),
            is_docker_desktop: info.is_docker_desktop,
            directory: info.data_dir,
            engine,
        })
    }

    /// The image a sandbox is made from, by content.
    pub(super) async fn image(&self, spec: &SandboxSpec) -> Result<Digest, SandboxError> {
        let name = spec
            .image
            .as_deref()
            .ok_or_else(|| SandboxError::unavailable(NAME, "no image is set (sandbox.image)"))?;
        match self.engine.image(name).await {
            Ok(Some(image)) => Ok(image.id),
            Ok(None) => Err(engine_failed(EngineError::NotFound {
                subject: format!("the image `{name}`"),
            })),
            Err(error) => Err(engine_failed(error)),
        }
    }

    /// The containers at a place: the sandbox's own, and the holder of its network.
    pub(super) async fn containers_at(&self, place: &Place) -> Result<Containers, SandboxError> {
        Ok(Containers {
            sandbox: self.container_at(place, &place.name()).await?,
            holder: self.container_at(place, &holder::name(&place.name())).await?,
        })
    }

    /// The container of this name at a place. One that has only its name is another's.
    async fn container_at(&self, place: &Place, name: &str) -> Result<Option<Container>, SandboxError> {
        let found = self.engine.container(name).await;
        let found = found.map_err(|error| failed(&place.name(), error))?;
        let workspace = place.workspace().display().to_string();
        Ok(found.filter(|container| container.labels.get(label::WORKSPACE) == Some(&workspace)))
    }

    /// Removes what is at a place, all of it.
    pub(super) async fn discard(&self, place: &Place) -> Result<(), SandboxError> {
        let Containers { sandbox, holder } = self.containers_at(place).await?;
        for container in sandbox.iter().chain(&holder) {
            let removed = self.engine.remove_container(&container.id).await;
            removed.map_err(|error| failed(&place.name(), error))?;
        }
        place.remove().map_err(|source| on_host("remove", place, source))
    }

    /// How a sandbox's network is closed.
    pub(super) fn closing(&self, spec: &SandboxSpec) -> Result<Closing, SealError> {
        let Some(plan) = SealPlan::of(&spec.network)? else {
            return Ok(Closing::Open);
        };
        match (&self.guest, self.is_docker_desktop, spec.network.mode()) {
            (Guest::Here(_), false, _) => Ok(Closing::Sealed(plan)),
            // Without any network there is nothing to hold.
            (Guest::Missing(_), _, PolicyMode::Deny) | (_, true, PolicyMode::Deny) => Ok(Closing::Shut),
            (Guest::Missing(reason), _, _) => Err(SealError::NoGuest(reason)),
            (_, true, _) => Err(SealError::Desktop),
        }
    }

    /// The holder at a place, whose container has this id.
    pub(super) fn holder(&self, place: &Place, container: String) -> Holder {
        Holder {
            engine: self.engine.clone(),
            container,
            dir: place.shared(),
        }
    }

    /// The sandbox at a place, whose container has this id.
    pub(super) fn open(&self, place: Place, container: String, manner: Manner) -> DockerSandbox {
        let files = Files::new(&place.workspace(), &place.staging()).owned_by(self.agent.outside);
        let plain = Plain {
            engine: self.engine.clone(),
            container,
            proxy: manner.proxy,
        };
        let opener = ByExec {
            plain: plain.clone(),
            door: place.door(),
            grace: manner.grace,
        };
        let warm = match &self.guest {
            Guest::Here(_) => Warm::new(opener),
            Guest::Missing(reason) => Warm::never(opener, reason),
        };
        let root = PathBuf::from(ROOT);
        let sandbox = place.name();
        DockerSandbox::new(plain, warm, place, Shelf { sandbox, root, files }).kept_in(self.directory.clone())
    }

    /// What is known when a container is planned.
    pub(super) fn facts<'a>(&'a self, image: &'a Digest, owner: &'a Owner) -> Facts<'a> {
        Facts {
            image,
            agent: self.agent,
            guest: &self.guest,
            processors: self.processors,
            owner,
        }
    }
}

/// Raises the limit of open files as far as that is allowed: every connection of a sandbox takes two.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(MOST_FILES).min(MOST_FILES);
    if limit.current.is_some_and(|current| current < most) {
        let raised = Rlimit {
            current: Some(most),
            ..limit
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files cannot be raised");
        }
    }
}
