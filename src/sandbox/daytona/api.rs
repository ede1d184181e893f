//! Daytona's control plane: sandboxes, snapshots and the vault.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::DaytonaProgress;
use super::client::DaytonaClient;
use super::error::DaytonaError;
use super::snapshot::PlannedSnapshot;
use super::storage;
use super::wire::{DaytonaPage, DaytonaPhase, DaytonaSandboxInfo, DaytonaSnapshot, DaytonaSnapshotPage};
use crate::clock::Clock;

/// The pause between two polls: short at first, then longer.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How long a sandbox may take to start or stop.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(180);
/// How long Daytona may take to build or pull an image.
pub(super) const BUILD_TIMEOUT: Duration = Duration::from_secs(1800);

/// How many items one page of a list has.
const PAGE_SIZE: &str = "100";

/// Daytona's control plane, at one URL with one key.
#[derive(Clone, Debug)]
pub(super) struct DaytonaApi {
    pub(super) client: DaytonaClient,
    pub(super) progress: DaytonaProgress,
    pub(super) clock: Arc<dyn Clock>,
}

impl DaytonaApi {
    /// A sandbox by its id or name; `None` if it does not exist or is being removed.
    pub(super) async fn sandbox(&self, id: &str) -> Result<Option<DaytonaSandboxInfo>, DaytonaError> {
        let call = self.client.get(&format!("sandbox/{id}"));
        match call.json::<DaytonaSandboxInfo>().await {
            Ok(info) => Ok(Some(info).filter(|info| info.phase() != DaytonaPhase::Removed)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The service inside a sandbox.
    pub(super) fn toolbox(&self, info: &DaytonaSandboxInfo) -> DaytonaClient {
        let mut toolbox = self.client.clone();
        toolbox.url = format!("{}/{}", info.toolbox_proxy_url.trim_end_matches('/'), info.id);
        toolbox
    }

    /// Starts a sandbox that is stopped, or stops one that runs, and waits until it is in that phase.
    pub(super) async fn bring_to(
        &self,
        target: DaytonaPhase,
        id: &str,
        timeout: Duration,
    ) -> Result<DaytonaSandboxInfo, DaytonaError> {
        let mut poll = self.poll(timeout);
        loop {
            let info = self.sandbox(id).await?;
            let info = info.ok_or_else(|| DaytonaError::Refused {
                call: format!("sandbox {id}"),
                status: 404,
                message: "the sandbox is gone".to_owned(),
            })?;
            match info.phase() {
                phase if phase == target => return Ok(info),
                DaytonaPhase::Stopped => self.act(id, "start").await?,
                DaytonaPhase::Started => self.act(id, "stop").await?,
                DaytonaPhase::Changing => {}
                DaytonaPhase::Removed | DaytonaPhase::Failed => {
                    return Err(DaytonaError::state(&info.name, &info.state, info.error_reason));
                }
            }
            poll.wait(&info.name, &info.state, info.error_reason).await?;
        }
    }

    /// A snapshot by its name; `None` if it does not exist.
    pub(super) async fn snapshot(&self, name: &str) -> Result<Option<DaytonaSnapshot>, DaytonaError> {
        match self.client.get(&format!("snapshots/{name}")).json().await {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }

    /// All snapshots of the organisation.
    pub(super) async fn snapshots(&self) -> Result<Vec<DaytonaSnapshot>, DaytonaError> {
        let (mut snapshots, mut page) = (Vec::new(), 1_u64);
        loop {
            let number = page.to_string();
            let query = [
                ("limit", PAGE_SIZE),
                ("sort", "name"),
                ("order", "asc"),
                ("page", &number),
            ];
            let found: DaytonaSnapshotPage = self.client.get("snapshots").query(&query).json().await?;
            snapshots.extend(found.items);
            if page >= found.total_pages {
                return Ok(snapshots);
            }
            page += 1;
        }
    }

    /// Waits until a snapshot is active. Registers it if it does not exist, or as soon as one that is being removed is
    /// gone; then calls `registered`.
    pub(super) async fn ensure_snapshot(
        &self,
        planned: &PlannedSnapshot,
        registered: impl Fn(),
    ) -> Result<(), DaytonaError> {
        let name = &planned.name;
        let mut poll = self.poll(BUILD_TIMEOUT);
        loop {
            let found = self.client.get(&format!("snapshots/{name}")).json().await;
            let found: DaytonaSnapshot = match (found, &planned.request) {
                (Err(error), Some(request)) if error.is_not_found() => {
                    if let Some(files) = &planned.files {
                        storage::upload(self, files).await?;
                    }
                    match self.client.post("snapshots", request.clone()).json().await {
                        // Another process registered it first.
                        Err(error) if error.status() == Some(409) => DaytonaSnapshot {
                            state: "being registered".to_owned(),
                            ..DaytonaSnapshot::default()
                        },
                        made => {
                            let made = made?;
                            registered();
                            made
                        }
                    }
                }
                (found, _) => found?,
            };
            match found.state.as_str() {
                "active" => return Ok(()),
                "inactive" => {
                    let activate = format!("snapshots/{}/activate", found.id);
                    let call = self.client.call(Method::POST, &activate);
                    call.repeatable().done().await?;
                }
                "error" | "build_failed" => {
                    return Err(DaytonaError::state(name, &found.state, found.error_reason));
                }
                _ => {}
            }
            poll.wait(name, &found.state, found.error_reason).await?;
        }
    }

    /// All items of a paginated list.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        filter: &[(&str, &str)],
    ) -> Result<Vec<T>, DaytonaError> {
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let mut query = vec![("limit", PAGE_SIZE)];
            query.extend(filter);
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let page: DaytonaPage<T> = self.client.get(path).query(&query).json().await?;
            items.extend(page.items);
            cursor = page.next_cursor.filter(|next| !next.is_empty());
            if cursor.is_none() {
                return Ok(items);
            }
        }
    }

    async fn act(&self, id: &str, verb: &str) -> Result<(), DaytonaError> {
        let call = self.client.call(Method::POST, &format!("sandbox/{id}/{verb}"));
        match call.repeatable().done().await {
            // Another process was faster; the next poll shows the state.
            Err(error) if error.status() == Some(409) => Ok(()),
            done => done,
        }
    }

    fn poll(&self, timeout: Duration) -> StatePoll<'_> {
        StatePoll {
            deadline: Instant::now() + timeout,
            pause: FIRST_PAUSE,
            progress: &self.progress,
            last: String::new(),
        }
    }
}

/// Pauses between polls, and reports changes.
struct StatePoll<'a> {
    deadline: Instant,
    pause: Duration,
    progress: &'a DaytonaProgress,
    last: String,
}

impl StatePoll<'_> {
    /// Reports the state if it changed, and waits. Fails if the timeout has passed.
    async fn wait(&mut self, name: &str, state: &str, reason: Option<String>) -> Result<(), DaytonaError> {
        if Instant::now() >= self.deadline {
            return Err(DaytonaError::state(name, state, reason));
        }
        if self.last != state {
            state.clone_into(&mut self.last);
            self.progress.report(&format!("{name} is {state}"));
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Ok(())
    }
}
