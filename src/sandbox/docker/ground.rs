//! What every sandbox of one provider stands on: the engine, its image, the agent's user and the guest.

use std::path::PathBuf;
use std::time::Duration;

use super::super::files::Files;
use super::super::guest::Guest;
use super::super::place::Place;
use super::super::shelf::Shelf;
use super::super::warm::Warm;
use super::super::{SandboxError, SandboxSpec};
use super::opener::ByExec;
use super::plain::Plain;
use super::plan::{Facts, ROOT, label};
use super::sandbox::DockerSandbox;
use super::user::Agent;
use super::{DockerOptions, NAME, failed};
use crate::engine::{Digest, Endpoint, Engine, EngineError};

/// What every sandbox stands on.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) engine: Engine,
    processors: u32,
    agent: Agent,
    guest: Guest,
}

impl Ground {
    /// Finds the engine, and what it needs to know of it.
    pub(super) async fn prepare(options: &DockerOptions) -> Result<Self, SandboxError> {
        let engine = Engine::connect(&options.surroundings, &options.host).await;
        let engine = engine.map_err(unavailable)?;
        if !matches!(engine.endpoint(), Endpoint::Unix(_)) {
            return Err(SandboxError::Unsupported {
                provider: NAME,
                operation: "share a workspace with its containers",
                reason: format!("the engine at {} is not on this machine", engine.endpoint()),
            });
        }
        let info = engine.info().await.map_err(unavailable)?;
        let dir = &options.guest_dir;
        Ok(Self {
            agent: Agent::on(info.users)?,
            guest: Guest::put(dir, &info.arch).map_err(|source| SandboxError::Host {
                operation: "write the guest to",
                path: dir.clone(),
                source,
            })?,
            processors: info.processors,
            engine,
        })
    }

    /// The image a sandbox is made from, by content.
    pub(super) async fn image(&self, spec: &SandboxSpec) -> Result<Digest, SandboxError> {
        let name = spec.image.as_deref().ok_or_else(|| SandboxError::Unavailable {
            provider: NAME,
            reason: "no image is named: set sandbox.image".to_owned(),
        })?;
        match self.engine.image(name).await {
            Ok(Some(image)) => Ok(image.id),
            Ok(None) => Err(failed(
                spec.run.as_str(),
                EngineError::NotFound {
                    subject: format!("the image `{name}`"),
                },
            )),
            Err(error) => Err(failed(spec.run.as_str(), error)),
        }
    }

    /// The id of the container at a place. One that has only its name is another's.
    pub(super) async fn container_at(&self, place: &Place) -> Result<Option<String>, SandboxError> {
        let found = self.engine.container(&place.name()).await;
        let found = found.map_err(|error| failed(&place.name(), error))?;
        let workspace = place.workspace().display().to_string();
        let ours = found.filter(|container| container.labels.get(label::WORKSPACE) == Some(&workspace));
        Ok(ours.map(|container| container.id))
    }

    /// The sandbox at a place, whose container has this id and runs.
    pub(super) fn open(&self, (place, container): (Place, String), grace: Duration) -> DockerSandbox {
        let files = Files::new(&place.workspace(), &place.staging()).owned_by(self.agent.outside);
        let plain = Plain {
            engine: self.engine.clone(),
            container,
        };
        let opener = ByExec {
            plain: plain.clone(),
            grace,
        };
        let warm = match &self.guest {
            Guest::Here(_) => Warm::new(opener),
            Guest::Missing(reason) => Warm::never(opener, reason),
        };
        let root = PathBuf::from(ROOT);
        let sandbox = place.name();
        DockerSandbox::new(plain, warm, place, Shelf { sandbox, root, files })
    }

    /// What is known when a container is planned.
    pub(super) fn facts<'a>(&'a self, image: &'a Digest) -> Facts<'a> {
        Facts {
            image,
            agent: self.agent,
            guest: &self.guest,
            processors: self.processors,
        }
    }
}

/// Why there are no sandboxes of this kind here.
fn unavailable(error: EngineError) -> SandboxError {
    failed("(none yet)", error)
}
