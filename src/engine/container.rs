//! The proof that an image can be started from.

use std::collections::HashMap;

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, RemoveContainerOptions};

use super::{Digest, Engine, EngineError};

/// By which a container that was left behind is known.
const LABEL: &str = "ralph.verify";

impl Engine {
    /// Makes a container from the image and removes it, without starting it: that fails when a layer is missing.
    pub async fn try_image(&self, image: &Digest) -> Result<(), EngineError> {
        let failed = |error| EngineError::from_api(image.as_str(), error);
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
        let options = RemoveContainerOptions {
            force: true,
            v: true,
            ..Default::default()
        };
        let removed = self
            .docker
            .remove_container(&made.map_err(failed)?.id, Some(options))
            .await;
        removed.map_err(failed)
    }
}
