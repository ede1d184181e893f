//! Makes the containers of a sandbox: its own and, where its network is sealed, the holder's before it.

use super::super::place::Place;
use super::super::{SandboxError, SandboxSpec};
use super::ground::{Closing, Ground, Manner};
use super::plan::{self, Facts, label};
use super::sandbox::DockerSandbox;
use super::seal::{Seal, SealError, SealStep, holder};
use super::{failed, unsealed};
use crate::engine::{ContainerNetwork, ContainerSpec};

/// Makes the containers of one sandbox.
pub(super) struct Maker<'a> {
    pub(super) ground: &'a Ground,
    pub(super) spec: &'a SandboxSpec,
    pub(super) facts: &'a Facts<'a>,
}

impl Maker<'_> {
    /// Makes a sandbox at a place, starts it, and shows that its network is closed. What was made for one that cannot
    /// be had is removed again.
    pub(super) async fn make(&self, place: &Place) -> Result<DockerSandbox, SandboxError> {
        let closing = self
            .ground
            .closing(self.spec)
            .map_err(|error| unsealed(place, error))?;
        let seal_plan = match closing {
            Closing::Open => return self.make_on(place, ContainerNetwork::Bridge, None).await,
            Closing::Shut => {
                return self
                    .make_on(place, ContainerNetwork::Isolated { dns: None }, None)
                    .await;
            }
            Closing::Sealed(plan) => plan,
        };
        let inspection = self.ground.inspection(self.spec, self.facts.image, place).await;
        let inspection = inspection.map_err(|error| unsealed(place, error))?;
        let image = holder::image(&self.ground.engine).await;
        let image = image.map_err(|error| failed(&place.name(), error))?;
        let mut labels = plan::labels(self.spec, self.facts, place);
        labels.insert(label::ROLE.to_owned(), label::HOLDER.to_owned());
        let container = holder::container(&place.name(), image, &place.shared(), labels);
        let holder = self.create(place, &container).await?;
        SealStep::HolderCreated.done(&holder);
        let seal = Seal::new(
            self.ground.holder(place, holder.clone()),
            seal_plan,
            &self.spec.egress,
            inspection,
        );
        let made = self
            .make_on(place, ContainerNetwork::SharedWith(holder.clone()), Some(seal))
            .await;
        if made.is_err() {
            self.remove(place, &holder).await?;
        }
        made
    }

    /// Makes the sandbox's own container while its network is made ready.
    async fn make_on(
        &self,
        place: &Place,
        network: ContainerNetwork,
        seal: Option<Seal>,
    ) -> Result<DockerSandbox, SandboxError> {
        let container = plan::container(self.spec, self.facts, place, network);
        let ready = async {
            match &seal {
                Some(seal) => seal.make_ready().await.map(drop),
                None => Ok::<(), SealError>(()),
            }
        };
        let created = async {
            let created = self.create(place, &container).await;
            if let (Ok(_), Some(seal)) = (&created, &seal) {
                SealStep::SandboxCreated.done(seal.holder());
            }
            created
        };
        let (created, ready) = tokio::join!(created, ready);
        let id = created?;
        let manner = Manner::of(self.spec, seal.as_ref());
        let sandbox = self
            .ground
            .open(place.clone(), id.clone(), manner)
            .limited_to(self.spec.resources.disk_bytes)
            .sealed(seal);
        let started = match ready {
            Ok(()) => sandbox.run().await,
            Err(error) => Err(unsealed(place, error)),
        };
        match started {
            Ok(()) => Ok(sandbox),
            Err(error) => {
                self.remove(place, &id).await?;
                Err(error)
            }
        }
    }

    async fn create(&self, place: &Place, container: &ContainerSpec) -> Result<String, SandboxError> {
        let created = self.ground.engine.create_container(container).await;
        created.map_err(|error| failed(&place.name(), error))
    }

    async fn remove(&self, place: &Place, container: &str) -> Result<(), SandboxError> {
        let removed = self.ground.engine.remove_container(container).await;
        removed.map_err(|error| failed(&place.name(), error))
    }
}
