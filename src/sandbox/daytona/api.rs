//! Daytona's control plane: sandboxes, snapshots and the vault.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::client::{CallRetry, DaytonaCall, DaytonaClient};
use super::toolbox::Toolbox;
use super::wire::{
    CreateDaytonaSandbox, CreateDaytonaSnapshot, DaytonaPage, DaytonaPhase, DaytonaPreview,
    DaytonaSandboxInfo, DaytonaSnapshot,
};
use super::{DaytonaError, DaytonaProgress};

/// The pause between two polls: short at first, then longer.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How long a sandbox may take to start or stop.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(180);
/// How long Daytona may take to build or pull an image.
pub(super) const BUILD_TIMEOUT: Duration = Duration::from_secs(1800);

/// How many items one page of a list has.
const PAGE_SIZE: u32 = 100;

/// Daytona's control plane, at one URL with one key.
#[derive(Clone, Debug)]
pub(super) struct DaytonaApi {
    pub(super) client: DaytonaClient,
    pub(super) url: String,
    pub(super) progress: DaytonaProgress,
}

impl DaytonaApi {
    /// Fails if the key is not valid.
    pub(super) async fn check_key(&self) -> Result<(), DaytonaError> {
        let call = self.call(&Method::GET, "sandbox");
        call.with(|request| request.query(&[("limit", 1)]))
            .done(CallRetry::Safe)
            .await
    }

    /// A sandbox by its id or name; `None` if it does not exist or is being removed.
    pub(super) async fn sandbox(&self, id: &str) -> Result<Option<DaytonaSandboxInfo>, DaytonaError> {
        let call = self.call(&Method::GET, &format!("sandbox/{id}"));
        match call.json::<DaytonaSandboxInfo>(CallRetry::Safe).await {
            Ok(info) if info.state.phase() == DaytonaPhase::Removed => Ok(None),
            Ok(info) => Ok(Some(info)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All sandboxes with these labels.
    pub(super) async fn sandboxes(
        &self,
        labels: &BTreeMap<&str, String>,
    ) -> Result<Vec<DaytonaSandboxInfo>, DaytonaError> {
        self.list("sandbox", ("labels", &json!(labels).to_string())).await
    }

    /// Creates a sandbox. It may exist although an error is returned.
    pub(super) async fn create(
        &self,
        new: &CreateDaytonaSandbox,
    ) -> Result<DaytonaSandboxInfo, DaytonaError> {
        let call = self.call(&Method::POST, "sandbox");
        call.with(|request| request.json(new))
            .json(CallRetry::Unsafe)
            .await
    }

    /// Starts a sandbox that is stopped, and waits until it runs commands.
    pub(super) async fn start(
        &self,
        id: &str,
        timeout: Duration,
    ) -> Result<DaytonaSandboxInfo, DaytonaError> {
        self.bring_to(DaytonaPhase::Started, id, timeout).await
    }

    /// Stops a sandbox that runs, and waits until it is stopped.
    pub(super) async fn stop(&self, id: &str) -> Result<(), DaytonaError> {
        self.bring_to(DaytonaPhase::Stopped, id, START_TIMEOUT)
            .await
            .map(drop)
    }

    async fn bring_to(
        &self,
        target: DaytonaPhase,
        id: &str,
        timeout: Duration,
    ) -> Result<DaytonaSandboxInfo, DaytonaError> {
        let mut poll = self.poll(timeout);
        loop {
            let info = self.sandbox(id).await?.ok_or_else(|| not_found(id))?;
            match info.state.phase() {
                phase if phase == target => return Ok(info),
                DaytonaPhase::Stopped => self.act(id, "start").await?,
                DaytonaPhase::Started => self.act(id, "stop").await?,
                DaytonaPhase::Changing => {}
                DaytonaPhase::Removed | DaytonaPhase::Failed => return Err(wrong_state(info)),
            }
            let seen = format!("{} is {}", info.name, info.state.0);
            if !poll.wait(&seen).await {
                return Err(wrong_state(info));
            }
        }
    }

    /// Removes a sandbox. It is fine if it does not exist.
    pub(super) async fn delete(&self, id: &str) -> Result<(), DaytonaError> {
        let call = self.call(&Method::DELETE, &format!("sandbox/{id}"));
        call.done_or_not_found().await
    }

    /// Replaces the labels of a sandbox.
    pub(super) async fn set_labels(
        &self,
        id: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), DaytonaError> {
        let call = self.call(&Method::PUT, &format!("sandbox/{id}/labels"));
        call.with(|request| request.json(&json!({ "labels": labels })))
            .done(CallRetry::Safe)
            .await
    }

    /// Reports activity, so that Daytona does not stop the sandbox as idle.
    pub(super) async fn touch(&self, id: &str) -> Result<(), DaytonaError> {
        let call = self.call(&Method::POST, &format!("sandbox/{id}/last-activity"));
        call.done(CallRetry::Safe).await
    }

    /// The URL of a port of a sandbox.
    pub(super) async fn preview(&self, id: &str, port: u16) -> Result<DaytonaPreview, DaytonaError> {
        let path = format!("sandbox/{id}/ports/{port}/preview-url");
        self.call(&Method::GET, &path).json(CallRetry::Safe).await
    }

    /// Waits until the snapshot of this name is active. Registers it from `source` if it does not exist. Returns whether
    /// it exists; it always does if there is a source.
    pub(super) async fn ensure_snapshot(
        &self,
        name: &str,
        source: Option<&CreateDaytonaSnapshot>,
    ) -> Result<bool, DaytonaError> {
        let mut poll = self.poll(BUILD_TIMEOUT);
        loop {
            let call = self.call(&Method::GET, &format!("snapshots/{name}"));
            let found: DaytonaSnapshot = match (call.json(CallRetry::Safe).await, source) {
                (Ok(found), _) => found,
                (Err(error), Some(source)) if error.is_not_found() => {
                    let call = self.call(&Method::POST, "snapshots");
                    let call = call.with(|request| request.json(source));
                    match call.json(CallRetry::Unsafe).await {
                        // Another process registered it first.
                        Err(error) if error.status() == Some(409) => {
                            if !poll.wait(&format!("{name} is being registered")).await {
                                return Err(error);
                            }
                            continue;
                        }
                        registered => registered?,
                    }
                }
                (Err(error), None) if error.is_not_found() => return Ok(false),
                (Err(error), _) => return Err(error),
            };
            match found.state.as_str() {
                "active" => return Ok(true),
                "inactive" => {
                    let activate = format!("snapshots/{}/activate", found.id);
                    self.call(&Method::POST, &activate).done(CallRetry::Safe).await?;
                }
                "error" | "build_failed" | "removing" => return Err(wrong_snapshot_state(name, found)),
                _ => {}
            }
            if !poll.wait(&format!("{name} is {}", found.state)).await {
                return Err(wrong_snapshot_state(name, found));
            }
        }
    }

    /// The toolbox in a sandbox.
    pub(super) fn toolbox(&self, info: &DaytonaSandboxInfo) -> Toolbox {
        let base = info.toolbox_proxy_url.trim_end_matches('/');
        Toolbox {
            client: self.client.clone(),
            url: format!("{base}/{}", info.id),
        }
    }

    /// All items of a paginated list.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        filter: (&str, &str),
    ) -> Result<Vec<T>, DaytonaError> {
        let (limit, mut cursor) = (PAGE_SIZE.to_string(), None::<String>);
        let mut items = Vec::new();
        loop {
            let mut query = vec![("limit", limit.as_str()), filter];
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let call = self.call(&Method::GET, path);
            let page: DaytonaPage<T> = call
                .with(|request| request.query(&query))
                .json(CallRetry::Safe)
                .await?;
            items.extend(page.items);
            cursor = page.next_cursor.filter(|next| !next.is_empty());
            if cursor.is_none() {
                return Ok(items);
            }
        }
    }

    async fn act(&self, id: &str, verb: &str) -> Result<(), DaytonaError> {
        let call = self.call(&Method::POST, &format!("sandbox/{id}/{verb}"));
        match call.done(CallRetry::Safe).await {
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

    pub(super) fn call(&self, method: &Method, path: &str) -> DaytonaCall {
        self.client.request(method, &format!("{}/{path}", self.url))
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
    /// Reports what was seen if it changed, and waits. Returns false if the timeout has passed.
    async fn wait(&mut self, seen: &str) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        if self.last != seen {
            seen.clone_into(&mut self.last);
            self.progress.report(seen);
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        true
    }
}

fn not_found(id: &str) -> DaytonaError {
    DaytonaError::Refused {
        call: format!("sandbox {id}"),
        status: 404,
        message: "the sandbox is gone".to_owned(),
    }
}

fn wrong_state(info: DaytonaSandboxInfo) -> DaytonaError {
    DaytonaError::State {
        subject: info.name,
        state: info.state.0,
        reason: info.error_reason,
    }
}

fn wrong_snapshot_state(name: &str, found: DaytonaSnapshot) -> DaytonaError {
    DaytonaError::State {
        subject: name.to_owned(),
        state: found.state,
        reason: found.error_reason,
    }
}
