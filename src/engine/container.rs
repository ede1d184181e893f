//! Containers, as far as images are concerned: which are in use, and the proof that one can be started from.

use std::collections::{BTreeSet, HashMap};

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, ListContainersOptions, RemoveContainerOptions};

use super::{Digest, Engine, EngineError};

/// By which a container that was left behind is known.
const LABEL: &str = "ralph.verify";

impl Engine {
    /// The images that there are containers of, running or not.
    pub async fn images_in_use(&self) -> Result<BTreeSet<Digest>, EngineError> {
        let options = ListContainersOptions {
            all: true,
            ..Default::default()
        };
        let listed = self.docker.list_containers(Some(options)).await;
        let listed = listed.map_err(|error| EngineError::from_api("the containers", error))?;
        let ids = listed.into_iter().filter_map(|container| container.image_id);
        Ok(ids.filter_map(|id| Digest::parse(&id).ok()).collect())
    }

    /// Makes a container from the image, without starting it: that fails when a layer is missing.
    pub async fn try_image(&self, image: &Digest) -> Result<Trial, EngineError> {
        let body = ContainerCreateBody {
            image: Some(image.to_string()),
            // An image may name no command, but a container must.
            cmd: Some(vec!["true".to_owned()]),
            labels: Some(HashMap::from([(LABEL.to_owned(), "true".to_owned())])),
            network_disabled: Some(true),
            host_config: Some(HostConfig {
                network_mode: Some("none".to_owned()),
                ..Default::default()
            }),
            ..Default::default()
        };
        let made = self
            .docker
            .create_container(None::<CreateContainerOptions>, body)
            .await;
        let container = made
            .map_err(|error| EngineError::from_api(image.as_str(), error))?
            .id;
        let engine = self.clone();
        Ok(Trial { engine, container })
    }
}

/// A container that was made to see whether it can be. It takes time to remove, in which other things can be done.
#[must_use = "the container must be removed"]
#[derive(Debug)]
pub struct Trial {
    engine: Engine,
    container: String,
}

impl Trial {
    /// Removes the container.
    pub async fn end(self) -> Result<(), EngineError> {
        let options = RemoveContainerOptions {
            force: true,
            v: true,
            ..Default::default()
        };
        let removed = self
            .engine
            .docker
            .remove_container(&self.container, Some(options))
            .await;
        removed.map_err(|error| EngineError::from_api(&self.container, error))
    }
}
