//! Creates, lists, inspects and removes containers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use bollard::errors::Error as ApiError;
use bollard::models::{ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::{
    CreateContainerOptions, EventsOptions, InspectContainerOptions, KillContainerOptions,
    ListContainersOptions, LogsOptions, RemoveContainerOptions, StartContainerOptions,
};
use futures_util::StreamExt;
use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;

use super::container_spec::SHARED_NETWORK;
use super::{
    ContainerLimits, ContainerNetwork, ContainerSpec, Digest, Engine, EngineError, EngineKind, ReadOnlyFiles,
};

/// An engine waits about ten seconds for a container to end, and then gives up. Thousands of processes take longer.
const END_ATTEMPTS: u32 = 6;

/// The longest life of a container that is made for one question. An older one was left by a process that was killed.
const MAX_AGE: SignedDuration = SignedDuration::from_mins(5);

/// While podman ends a container, it lists it with a state that the client does not know (`stopping`, `stopped`). It is asked
/// again for about ten seconds.
const LIST_ATTEMPTS: u32 = 200;
const LIST_POLL: Duration = Duration::from_millis(50);

/// A container of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The id that the engine gave it.
    pub id: String,
    /// Its name, without a leading slash.
    pub name: String,
    /// The image that it was created from, by the name or id of that time.
    pub image: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Its state.
    pub state: ContainerState,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When it was last started. Only [`Engine::container`] fills this in.
    pub started: Option<Timestamp>,
    /// The id of the container whose network it shares. Only [`Engine::container`] fills this in.
    pub shares_network_of: Option<String>,
    /// Whose processes it sees beside its own: `host`, or `container:` and an id. `None` if it sees only its own. Only
    /// [`Engine::container`] fills this in.
    pub shares_processes_of: Option<String>,
    /// The environment of its commands. Only [`Engine::container`] fills this in.
    pub env: BTreeMap<String, String>,
}

/// The state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Its first process runs.
    Running,
    /// Its processes are frozen.
    Paused,
    /// It was created and never started.
    Created,
    /// Its first process has exited.
    Stopped,
    /// Its first process was killed because the container ran out of memory.
    OutOfMemory,
}

impl Engine {
    /// Creates a container without starting it; returns its id.
    pub async fn create_container(&self, spec: &ContainerSpec) -> Result<String, EngineError> {
        let options = CreateContainerOptions {
            name: Some(spec.name.clone()),
            ..Default::default()
        };
        let created = self
            .docker
            .create_container(Some(options), spec.body(self.kind))
            .await;
        created.map(|created| created.id).map_err(|error| {
            // Nothing else in the body can be missing.
            match EngineError::from_api(&spec.name, error) {
                EngineError::NotFound { .. } => EngineError::NotFound {
                    subject: format!("the image `{}`", spec.image),
                },
                other => other,
            }
        })
    }

    /// Creates a container from the image without starting it, which fails when a layer is missing. Returns its id.
    /// Removing it takes time, so the caller chooses when.
    pub async fn try_image(&self, image: &Digest) -> Result<String, EngineError> {
        self.create_container(&unstarted(image, "ralph.verify")).await
    }

    /// The images that containers were created from, running or not.
    pub async fn images_in_use(&self) -> Result<BTreeSet<Digest>, EngineError> {
        let listed = self.list_containers(HashMap::new()).await?;
        let ids = listed.into_iter().filter_map(|container| container.image_id);
        Ok(ids.filter_map(|id| Digest::parse(&id).ok()).collect())
    }

    /// Starts a container. Does nothing when it is running.
    pub async fn start_container(&self, container: &str) -> Result<(), EngineError> {
        let started = self
            .docker
            .start_container(container, None::<StartContainerOptions>)
            .await;
        started.map_err(|error| EngineError::from_api(container, error))
    }

    /// Kills every process of a container. Does nothing when it is not running.
    pub async fn kill_container(&self, container: &str) -> Result<(), EngineError> {
        let options = KillContainerOptions {
            signal: "SIGKILL".to_owned(),
        };
        for attempt in 1.. {
            let killed = self.docker.kill_container(container, Some(options.clone())).await;
            match killed.map_err(|error| EngineError::from_api(container, error)) {
                Err(EngineError::Conflict { .. }) => break,
                Err(error) if error.is_slow_end() && attempt < END_ATTEMPTS => {}
                other => return other,
            }
        }
        Ok(())
    }

    /// Removes a container with its anonymous volumes, running or not. Does nothing when it does not exist.
    pub async fn remove_container(&self, container: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptions {
            force: true,
            v: true,
            ..Default::default()
        };
        for attempt in 1.. {
            let removed = self
                .docker
                .remove_container(container, Some(options.clone()))
                .await;
            match removed.map_err(|error| EngineError::from_api(container, error)) {
                // A conflict means that it is being removed already.
                Err(EngineError::NotFound { .. } | EngineError::Conflict { .. }) => break,
                Err(error) if error.is_slow_end() && attempt < END_ATTEMPTS => {}
                other => return other,
            }
        }
        Ok(())
    }

    /// The container with this name or id; `None` when it does not exist.
    pub async fn container(&self, container: &str) -> Result<Option<Container>, EngineError> {
        let found = self
            .docker
            .inspect_container(container, None::<InspectContainerOptions>)
            .await;
        match found.map_err(|error| EngineError::from_api(container, error)) {
            Ok(found) => Ok(Some(from_inspect(found))),
            Err(EngineError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The bytes that a container has written to its own layer, which excludes mounts. This is slow: the engine looks at
    /// every file, and counts files by their length.
    pub async fn container_size(&self, container: &str) -> Result<u64, EngineError> {
        let options = InspectContainerOptions { size: true };
        let found = self.docker.inspect_container(container, Some(options)).await;
        let found = found.map_err(|error| EngineError::from_api(container, error))?;
        // Negative when the engine does not know it yet.
        Ok(found
            .size_rw
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or(0))
    }

    /// The last lines of the output of a container's first process.
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

    /// Whether a process of the container was killed between these times because the container ran out of memory.
    pub async fn ran_out_of_memory(
        &self,
        container: &str,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<bool, EngineError> {
        let seconds = |at: Timestamp| format!("{}.{:09}", at.as_second(), at.subsec_nanosecond());
        let options = EventsOptions {
            since: Some(seconds(since)),
            until: Some(seconds(until)),
            filters: Some(HashMap::from([
                ("container".to_owned(), vec![container.to_owned()]),
                ("event".to_owned(), vec!["oom".to_owned()]),
            ])),
        };
        match self.docker.events(Some(options)).next().await {
            None => Ok(false),
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) => Err(EngineError::from_api(container, error)),
        }
    }

    /// All containers with this label (`name` or `name=value`), running or not.
    pub async fn containers(&self, label: &str) -> Result<Vec<Container>, EngineError> {
        let filters = HashMap::from([("label".to_owned(), vec![label.to_owned()])]);
        let listed = self.list_containers(filters).await?;
        Ok(listed.into_iter().map(from_summary).collect())
    }

    /// Removes containers with this label that are older than five minutes at `now`: those that were made for one
    /// question, by a process that was killed.
    pub(crate) async fn remove_abandoned(&self, label: &str, now: Timestamp) -> Result<(), EngineError> {
        for container in self.containers(label).await? {
            let age = container.created.map(|created| now.duration_since(created));
            if age.is_some_and(|age| age > MAX_AGE) {
                self.remove_container(&container.id).await?;
            }
        }
        Ok(())
    }

    async fn list_containers(
        &self,
        filters: HashMap<String, Vec<String>>,
    ) -> Result<Vec<ContainerSummary>, EngineError> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(filters),
            ..Default::default()
        };
        for _ in 1..LIST_ATTEMPTS {
            match self.docker.list_containers(Some(options.clone())).await {
                Err(ApiError::JsonDataError { .. }) if self.kind == EngineKind::Podman => {
                    sleep(LIST_POLL).await;
                }
                listed => return listed.map_err(|error| EngineError::from_api("the containers", error)),
            }
        }
        let listed = self.docker.list_containers(Some(options)).await;
        listed.map_err(|error| EngineError::from_api("the containers", error))
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
        volume: None,
        volume_of: None,
        in_memory: BTreeMap::new(),
        limits: ContainerLimits::default(),
        network: ContainerNetwork::Isolated { dns: None },
        seccomp: None,
        runtime: None,
        read_only: ReadOnlyFiles::Nothing,
        manages_network: false,
        removes_itself: false,
    }
}

fn from_inspect(inspected: ContainerInspectResponse) -> Container {
    let state = inspected.state.unwrap_or_default();
    let config = inspected.config.unwrap_or_default();
    let host = inspected.host_config.unwrap_or_default();
    Container {
        id: inspected.id.unwrap_or_default(),
        name: plain_name(inspected.name.as_deref()),
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
        created: inspected.created.and_then(|time| time.parse().ok()),
        shares_network_of: host
            .network_mode
            .and_then(|mode| mode.strip_prefix(SHARED_NETWORK).map(str::to_owned)),
        shares_processes_of: host
            .pid_mode
            .filter(|mode| !["", "private"].contains(&mode.as_str())),
        env: config
            .env
            .unwrap_or_default()
            .iter()
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    }
}

fn from_summary(summary: ContainerSummary) -> Container {
    let names = summary.names.unwrap_or_default();
    Container {
        id: summary.id.unwrap_or_default(),
        name: plain_name(names.first().map(String::as_str)),
        image: summary.image.unwrap_or_default(),
        labels: summary.labels.unwrap_or_default().into_iter().collect(),
        state: match summary.state {
            Some(ContainerSummaryStateEnum::RUNNING) => ContainerState::Running,
            Some(ContainerSummaryStateEnum::PAUSED) => ContainerState::Paused,
            Some(ContainerSummaryStateEnum::CREATED) => ContainerState::Created,
            _ => ContainerState::Stopped,
        },
        created: summary
            .created
            .and_then(|seconds| Timestamp::from_second(seconds).ok()),
        started: None,
        shares_network_of: None,
        shares_processes_of: None,
        env: BTreeMap::new(),
    }
}

/// The time of an event that has not happened.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Removes the leading slash of names in the API.
fn plain_name(name: Option<&str>) -> String {
    name.unwrap_or_default().trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::docker("", None)]
    #[case::podman("private", None)]
    #[case::host("host", Some("host"))]
    #[case::container("container:1f", Some("container:1f"))]
    fn shared_processes_are_recognised(#[case] mode: &str, #[case] expected: Option<&str>) {
        let inspected = json!({ "Id": "2e", "HostConfig": { "PidMode": mode } });
        let container = from_inspect(serde_json::from_value(inspected).unwrap());
        assert_eq!(container.shares_processes_of.as_deref(), expected);
    }
}
