//! Containers that are created and never started: to check that an image is complete, and to read its files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{ContainerLimits, ContainerNetwork, ContainerSpec, Digest, Engine, EngineError};

/// The label of a container that checks an image.
const LABEL: &str = "ralph.verify";

impl Engine {
    /// Creates a container from the image without starting it, which fails when a layer is missing.
    pub async fn try_image(&self, image: &Digest) -> Result<TrialContainer, EngineError> {
        let container = self.create_container(&unstarted(image, LABEL)).await?;
        let engine = self.clone();
        Ok(TrialContainer { engine, container })
    }
}

/// A container of [`Engine::try_image`]. Removing it takes time, so the caller chooses when.
#[must_use = "the container must be removed"]
#[derive(Debug)]
pub struct TrialContainer {
    engine: Engine,
    container: String,
}

impl TrialContainer {
    /// Removes the container.
    pub async fn remove(self) -> Result<(), EngineError> {
        self.engine.remove_container(&self.container).await
    }
}

/// A container of this image that is never started.
pub(super) fn unstarted(image: &Digest, label: &str) -> ContainerSpec {
    ContainerSpec {
        name: format!("{}-{:016x}", label.replace('.', "-"), fastrand::u64(..)),
        image: image.to_string(),
        command: vec!["/never-started".to_owned()],
        user: "0:0".to_owned(),
        work_dir: PathBuf::from("/"),
        env: BTreeMap::new(),
        labels: BTreeMap::from([(label.to_owned(), String::new())]),
        mounts: Vec::new(),
        in_memory: BTreeMap::new(),
        limits: ContainerLimits::default(),
        network: ContainerNetwork::Isolated { dns: None },
        manages_network: false,
    }
}
