//! The containers of an engine, and their lives.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bollard::models::{ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, KillContainerOptions, ListContainersOptions,
    LogsOptions, RemoveContainerOptions, StartContainerOptions,
};
use futures_util::StreamExt;
use jiff::Timestamp;

use super::container_spec::JOINED;
use super::{ContainerSpec, Digest, Engine, EngineError};

/// A container as the engine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The image it was made from, as it was named then.
    pub image: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it runs.
    pub state: ContainerState,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// When it was last started, where it was asked about alone.
    pub started: Option<Timestamp>,
    /// The container whose network it has, by its id, where it was asked about alone.
    pub joined: Option<String>,
    /// The variables its commands start with, where it was asked about alone.
    pub env: BTreeMap<String, String>,
}

/// Whether a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// It does.
    Running,
    /// It was held still by somebody.
    Paused,
    /// It was made and never started.
    Created,
    /// Its first process has ended.
    Stopped,
    /// Its first process was killed for the container's use of memory.
    OutOfMemory,
}

impl Engine {
    /// Makes a container without starting it; returns its id.
    pub async fn create_container(&self, spec: &ContainerSpec) -> Result<String, EngineError> {
        let options = CreateContainerOptions {
            name: Some(spec.name.clone()),
            ..Default::default()
        };
        let made = self.docker.create_container(Some(options), spec.body()).await;
        made.map(|made| made.id).map_err(|error| {
            // The engine knows every part of the body but the image.
            match EngineError::from_api(&spec.name, error) {
                EngineError::NotFound { .. } => EngineError::NotFound {
                    subject: format!("the image `{}`", spec.image),
                },
                other => other,
            }
        })
    }

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

    /// Starts a container; one that runs is left alone.
    pub async fn start_container(&self, container: &str) -> Result<(), EngineError> {
        let started = self
            .docker
            .start_container(container, None::<StartContainerOptions>)
            .await;
        started.map_err(|error| EngineError::from_api(container, error))
    }

    /// Kills every process of a container; one that does not run is left alone.
    pub async fn kill_container(&self, container: &str) -> Result<(), EngineError> {
        let options = KillContainerOptions {
            signal: "SIGKILL".to_owned(),
        };
        let killed = self.docker.kill_container(container, Some(options)).await;
        match killed.map_err(|error| EngineError::from_api(container, error)) {
            Err(EngineError::Conflict { .. }) => Ok(()),
            other => other,
        }
    }

    /// Removes a container, whatever it does, with the volumes nobody else has. One that is not there is removed
    /// already.
    pub async fn remove_container(&self, container: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptions {
            force: true,
            v: true,
            ..Default::default()
        };
        let removed = self.docker.remove_container(container, Some(options)).await;
        match removed.map_err(|error| EngineError::from_api(container, error)) {
            // Somebody else is removing it.
            Err(EngineError::NotFound { .. } | EngineError::Conflict { .. }) => Ok(()),
            other => other,
        }
    }

    /// The container of this name or id, if there is one.
    pub async fn container(&self, container: &str) -> Result<Option<Container>, EngineError> {
        let found = self
            .docker
            .inspect_container(container, None::<InspectContainerOptions>)
            .await;
        match found.map_err(|error| EngineError::from_api(container, error)) {
            Ok(found) => Ok(Some(of_inspect(found))),
            Err(EngineError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How many bytes a container has written to a layer of its own: to whatever is no mount. Files count by their
    /// length. The engine looks at each of them for it.
    pub async fn container_size(&self, container: &str) -> Result<u64, EngineError> {
        let options = InspectContainerOptions { size: true };
        let found = self.docker.inspect_container(container, Some(options)).await;
        let found = found.map_err(|error| EngineError::from_api(container, error))?;
        // An engine that has written nothing yet may say so with a negative number.
        Ok(found
            .size_rw
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or(0))
    }

    /// The last lines that a container's first process, or something in its place, printed.
    pub async fn container_log(&self, container: &str, lines: u32) -> Result<String, EngineError> {
        let options = LogsOptions {
            stdout: true,
            stderr: true,
            tail: lines.to_string(),
            ..Default::default()
        };
        let mut pieces = self.docker.logs(container, Some(options));
        let mut log = String::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| EngineError::from_api(container, error))?;
            log.push_str(&String::from_utf8_lossy(&piece.into_bytes()));
        }
        Ok(log)
    }

    /// All containers with this label (`name` or `name=value`), whether they run or not.
    pub async fn containers(&self, label: &str) -> Result<Vec<Container>, EngineError> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([("label".to_owned(), vec![label.to_owned()])])),
            ..Default::default()
        };
        let listed = self.docker.list_containers(Some(options)).await;
        let listed = listed.map_err(|error| EngineError::from_api("the containers", error))?;
        Ok(listed.into_iter().map(of_summary).collect())
    }
}

fn of_inspect(found: ContainerInspectResponse) -> Container {
    let state = found.state.unwrap_or_default();
    let config = found.config.unwrap_or_default();
    Container {
        id: found.id.unwrap_or_default(),
        name: plain_name(found.name.as_deref()),
        image: config.image.unwrap_or_default(),
        labels: config.labels.unwrap_or_default().into_iter().collect(),
        started: state.started_at.as_deref().and_then(|time| time.parse().ok()),
        state: match state {
            state if state.paused == Some(true) => ContainerState::Paused,
            state if state.running == Some(true) => ContainerState::Running,
            state if state.oom_killed == Some(true) => ContainerState::OutOfMemory,
            state if state.pid == Some(0) && state.finished_at.as_deref() == Some(NEVER) => {
                ContainerState::Created
            }
            _ => ContainerState::Stopped,
        },
        created: found.created.and_then(|time| time.parse().ok()),
        joined: found
            .host_config
            .and_then(|host| host.network_mode?.strip_prefix(JOINED).map(str::to_owned)),
        env: config
            .env
            .unwrap_or_default()
            .iter()
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    }
}

fn of_summary(found: ContainerSummary) -> Container {
    let names = found.names.unwrap_or_default();
    Container {
        id: found.id.unwrap_or_default(),
        name: plain_name(names.first().map(String::as_str)),
        image: found.image.unwrap_or_default(),
        labels: found.labels.unwrap_or_default().into_iter().collect(),
        state: match found.state {
            Some(ContainerSummaryStateEnum::RUNNING) => ContainerState::Running,
            Some(ContainerSummaryStateEnum::PAUSED) => ContainerState::Paused,
            Some(ContainerSummaryStateEnum::CREATED) => ContainerState::Created,
            _ => ContainerState::Stopped,
        },
        created: found
            .created
            .and_then(|seconds| Timestamp::from_second(seconds).ok()),
        started: None,
        joined: None,
        env: BTreeMap::new(),
    }
}

/// How the engine writes a time that has not come.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// The API writes names with a slash before them.
fn plain_name(name: Option<&str>) -> String {
    name.unwrap_or_default().trim_start_matches('/').to_owned()
}
