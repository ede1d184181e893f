//! Daytona's control plane: sandboxes and snapshots.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::client::{Call, Http, Repeat};
use super::toolbox::Toolbox;
use super::wire::{NewSandbox, NewSnapshot, Page, Phase, Preview, Remote, Snapshot};
use super::{DaytonaError, Waiting};

/// How often something that is on its way is looked at: soon at first, later less often.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LAST_LOOK: Duration = Duration::from_secs(2);

/// How long a sandbox may take to start or to stop, and Daytona to make one from an image.
pub(super) const SANDBOX_PATIENCE: Duration = Duration::from_secs(180);
pub(super) const BUILD_PATIENCE: Duration = Duration::from_secs(1800);

/// How many sandboxes one page of a listing holds.
const PAGE: u32 = 100;

/// Daytona's control plane, at one address with one key.
#[derive(Clone, Debug)]
pub(super) struct Api {
    pub(super) http: Http,
    pub(super) url: String,
    pub(super) waiting: Waiting,
}

impl Api {
    /// Whether the key opens anything.
    pub(super) async fn try_key(&self) -> Result<(), DaytonaError> {
        let call = self.call(&Method::GET, "sandbox");
        call.with(|request| request.query(&[("limit", 1)]))
            .done(Repeat::Harmless)
            .await
    }

    /// A sandbox by its id or name; `None` when it is not there, or about to be gone.
    pub(super) async fn sandbox(&self, id: &str) -> Result<Option<Remote>, DaytonaError> {
        let found = self.call(&Method::GET, &format!("sandbox/{id}"));
        match found.json::<Remote>(Repeat::Harmless).await {
            Ok(remote) if remote.state.phase() == Phase::Ending => Ok(None),
            Ok(remote) => Ok(Some(remote)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All sandboxes with these labels.
    pub(super) async fn labelled(
        &self,
        labels: &BTreeMap<&str, String>,
    ) -> Result<Vec<Remote>, DaytonaError> {
        let (labels, mut cursor) = (json!(labels).to_string(), None::<String>);
        let mut all = Vec::new();
        loop {
            let mut query = vec![("limit", PAGE.to_string()), ("labels", labels.clone())];
            query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let call = self.call(&Method::GET, "sandbox");
            let page: Page = call
                .with(|request| request.query(&query))
                .json(Repeat::Harmless)
                .await?;
            all.extend(page.items);
            match page.next_cursor.filter(|next| !next.is_empty()) {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Makes a sandbox. One of that name may come of it even when an error does: look for it.
    pub(super) async fn create(&self, new: &NewSandbox) -> Result<Remote, DaytonaError> {
        let call = self.call(&Method::POST, "sandbox");
        call.with(|request| request.json(new)).json(Repeat::Harmful).await
    }

    /// Waits until a sandbox takes commands, and starts one that rests.
    pub(super) async fn started(&self, id: &str, patience: Duration) -> Result<Remote, DaytonaError> {
        let mut looks = self.looks(patience);
        loop {
            let remote = self.sandbox(id).await?.ok_or_else(|| missing(id))?;
            match remote.state.phase() {
                Phase::Started => return Ok(remote),
                Phase::Resting => self.act(id, "start").await?,
                Phase::Moving => {}
                Phase::Ending | Phase::Failed => return Err(came_to_nothing(remote)),
            }
            let seen = format!("{} is {}", remote.name, remote.state.0);
            looks.next(&seen).await.ok_or_else(|| came_to_nothing(remote))?;
        }
    }

    /// Waits until a sandbox rests.
    pub(super) async fn stopped(&self, id: &str) -> Result<(), DaytonaError> {
        let mut looks = self.looks(SANDBOX_PATIENCE);
        loop {
            let remote = self.sandbox(id).await?.ok_or_else(|| missing(id))?;
            match remote.state.phase() {
                Phase::Resting => return Ok(()),
                Phase::Started => self.act(id, "stop").await?,
                Phase::Moving => {}
                Phase::Ending | Phase::Failed => return Err(came_to_nothing(remote)),
            }
            let seen = format!("{} is {}", remote.name, remote.state.0);
            looks.next(&seen).await.ok_or_else(|| came_to_nothing(remote))?;
        }
    }

    /// Removes a sandbox; one that is gone is fine.
    pub(super) async fn delete(&self, id: &str) -> Result<(), DaytonaError> {
        let call = self.call(&Method::DELETE, &format!("sandbox/{id}"));
        match call.done(Repeat::Harmless).await {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        }
    }

    /// Writes other labels on a sandbox, in place of those it has.
    pub(super) async fn relabel(
        &self,
        id: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), DaytonaError> {
        let call = self.call(&Method::PUT, &format!("sandbox/{id}/labels"));
        call.with(|request| request.json(&json!({ "labels": labels })))
            .done(Repeat::Harmless)
            .await
    }

    /// Says that a sandbox is in use, so that it is not stopped for being idle.
    pub(super) async fn touch(&self, id: &str) -> Result<(), DaytonaError> {
        let call = self.call(&Method::POST, &format!("sandbox/{id}/last-activity"));
        call.done(Repeat::Harmless).await
    }

    /// A link to a port of a sandbox.
    pub(super) async fn preview(&self, id: &str, port: u16) -> Result<Preview, DaytonaError> {
        let path = format!("sandbox/{id}/ports/{port}/preview-url");
        self.call(&Method::GET, &path).json(Repeat::Harmless).await
    }

    /// The snapshot of this name, ready to be used; registered first where it is not there. `None`: it is not there,
    /// and nobody said what it should be made from.
    pub(super) async fn snapshot(
        &self,
        name: &str,
        source: Option<&NewSnapshot>,
    ) -> Result<Option<()>, DaytonaError> {
        let mut looks = self.looks(BUILD_PATIENCE);
        loop {
            let call = self.call(&Method::GET, &format!("snapshots/{name}"));
            let found: Snapshot = match (call.json(Repeat::Harmless).await, source) {
                (Ok(found), _) => found,
                (Err(error), Some(source)) if error.is_not_found() => match self.register(source).await {
                    // Somebody else was quicker: the next look tells.
                    Err(error) if error.status() == Some(409) => {
                        looks.next(&format!("{name} is being made")).await.ok_or(error)?;
                        continue;
                    }
                    registered => registered?,
                },
                (Err(error), None) if error.is_not_found() => return Ok(None),
                (Err(error), _) => return Err(error),
            };
            match found.state.as_str() {
                "active" => return Ok(Some(())),
                "inactive" => {
                    let activate = format!("snapshots/{}/activate", found.id);
                    self.call(&Method::POST, &activate).done(Repeat::Harmless).await?;
                }
                "error" | "build_failed" | "removing" => return Err(no_snapshot(name, found)),
                _ => {}
            }
            let seen = format!("{name} is {}", found.state);
            looks.next(&seen).await.ok_or_else(|| no_snapshot(name, found))?;
        }
    }

    /// The toolbox in a sandbox.
    pub(super) fn toolbox(&self, remote: &Remote) -> Toolbox {
        let base = remote.toolbox_proxy_url.trim_end_matches('/');
        Toolbox {
            http: self.http.clone(),
            url: format!("{base}/{}", remote.id),
        }
    }

    async fn register(&self, source: &NewSnapshot) -> Result<Snapshot, DaytonaError> {
        let call = self.call(&Method::POST, "snapshots");
        call.with(|request| request.json(source))
            .json(Repeat::Harmful)
            .await
    }

    async fn act(&self, id: &str, verb: &str) -> Result<(), DaytonaError> {
        let call = self.call(&Method::POST, &format!("sandbox/{id}/{verb}"));
        match call.done(Repeat::Harmless).await {
            // Somebody else was quicker: the next look tells.
            Err(error) if error.status() == Some(409) => Ok(()),
            done => done,
        }
    }

    fn looks(&self, patience: Duration) -> Looks<'_> {
        Looks {
            until: Instant::now() + patience,
            pause: FIRST_LOOK,
            waiting: &self.waiting,
            seen: String::new(),
        }
    }

    pub(super) fn call(&self, method: &Method, path: &str) -> Call {
        self.http.request(method, &format!("{}/{path}", self.url))
    }
}

/// When to look again at something that is on its way.
struct Looks<'a> {
    until: Instant,
    pause: Duration,
    waiting: &'a Waiting,
    /// What was told last.
    seen: String,
}

impl Looks<'_> {
    /// Tells what is seen now, unless that is known, and waits until it is time; `None` when it is time to give up.
    async fn next(&mut self, seen: &str) -> Option<()> {
        if Instant::now() >= self.until {
            return None;
        }
        if self.seen != seen {
            seen.clone_into(&mut self.seen);
            self.waiting.tell(seen);
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LAST_LOOK);
        Some(())
    }
}

fn missing(id: &str) -> DaytonaError {
    DaytonaError::Refused {
        call: format!("sandbox {id}"),
        status: 404,
        message: "it is gone".to_owned(),
    }
}

fn came_to_nothing(remote: Remote) -> DaytonaError {
    DaytonaError::State {
        subject: remote.name,
        state: remote.state.0,
        reason: remote.error_reason,
    }
}

fn no_snapshot(name: &str, found: Snapshot) -> DaytonaError {
    DaytonaError::State {
        subject: name.to_owned(),
        state: found.state,
        reason: found.error_reason,
    }
}
