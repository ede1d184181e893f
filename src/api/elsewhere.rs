//! Runs that a worker on another host has. What is asked of them goes to the inbox of the store, what they did comes from the
//! index and from the mirrored events.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

use crate::assembly::AssemblyError;
use crate::assembly::queued_run::QueuedRun;
use crate::id::RunId;
use crate::state::{Intervention, InterventionRequest, RunDir, StateError};
use crate::store::{IndexedRun, QueueRow, QueueState};

use super::create::LOCAL;
use super::extract::NamedId;
use super::problem::Problem;
use super::runs::blocking;
use super::steer::unisolated;
use super::watched_log::WatchedLog;
use super::{Api, Caller};

/// The run that the path names, by where its requests go.
pub(super) enum AskedRun {
    /// To its directory on this host.
    Here(RunDir),
    /// To the store: a worker on another host has it.
    Elsewhere(QueueRow),
}

impl FromRequestParts<Arc<Api>> for AskedRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let NamedId(id) = NamedId::from_request_parts(parts, api).await?;
        let here = api.run_here(&id)?;
        if let Some(row) = api.claimed_elsewhere(&id, here.as_ref()).await? {
            return Ok(Self::Elsewhere(row));
        }
        Ok(Self::Here(api.existing(&id, here)?))
    }
}

/// The events of the run that the path names.
pub(super) struct NamedEvents(pub(super) WatchedLog);

impl FromRequestParts<Arc<Api>> for NamedEvents {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let NamedId(id) = NamedId::from_request_parts(parts, api).await?;
        Ok(Self(api.event_log(&id).await?))
    }
}

impl Api {
    /// The directory of a run on this host, if there is one.
    pub(super) fn run_here(&self, id: &RunId) -> Result<Option<RunDir>, Problem> {
        match self.surroundings.runs()?.open(id) {
            Err(StateError::NoSuchRun { .. }) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Refuses a run that has no directory here.
    pub(super) fn existing(&self, id: &RunId, here: Option<RunDir>) -> Result<RunDir, Problem> {
        let runs = self.surroundings.runs()?.dir().to_owned();
        let run = id.clone();
        here.ok_or_else(|| StateError::NoSuchRun { run, runs }.into())
    }

    /// The row in the queue of a run that a worker on another host has.
    pub(super) async fn claimed_elsewhere(
        &self,
        id: &RunId,
        here: Option<&RunDir>,
    ) -> Result<Option<QueueRow>, Problem> {
        if !self.store.is_shared() || is_live(here)? {
            return Ok(None);
        }
        let row = self.store.queue_row(id).await?;
        Ok(row.filter(|row| row.state == QueueState::Running))
    }

    /// Refuses a run that a worker on another host has.
    pub(super) async fn check_here(&self, run: &RunDir) -> Result<(), Problem> {
        let Some(row) = self.claimed_elsewhere(&run.facts().id, Some(run)).await? else {
            return Ok(());
        };
        let (id, worker) = (row.run, row.owner.unwrap_or_default());
        let detail = format!("run `{id}` is being worked on by the worker `{worker}` on another host");
        Err(Problem::new(StatusCode::CONFLICT, detail)
            .with_hint("pause it first; a note, a sign, a profile or hosts can be sent to it"))
    }

    /// Leaves a request for the worker that has a run. The run itself refuses what it cannot do.
    pub(super) async fn ask_elsewhere(
        &self,
        caller: &Caller,
        row: &QueueRow,
        intervention: Intervention,
    ) -> Result<InterventionRequest, Problem> {
        if let Some(problem) = intervention.problem() {
            return Err(AssemblyError::usage(problem).into());
        }
        if !intervention.is_order() && self.refuses_unisolated(caller) {
            let queued = serde_json::from_str::<QueuedRun>(&row.request);
            let queued = queued.map_err(|error| AssemblyError::runtime(error.to_string()))?;
            if queued.provider == LOCAL {
                return Err(unisolated(&format!("run `{}` works", row.run)));
            }
        }
        let request = InterventionRequest::new(intervention, &caller.name, self.surroundings.now());
        self.store.leave_intervention(&row.run, &request).await?;
        Ok(request)
    }

    /// The events of a run: in its directory, or as other hosts mirrored them if they did more.
    pub(super) async fn event_log(&self, id: &RunId) -> Result<WatchedLog, Problem> {
        let here = self.run_here(id)?;
        if let (Some(_), Some(mirrored)) = (self.newer_elsewhere(id, here.as_ref()).await?, &self.mirrored) {
            let log = mirrored.open(&self.store, id);
            log.update().await?;
            return Ok(log);
        }
        Ok(WatchedLog::of_dir(&self.existing(id, here)?))
    }

    /// The row of a run whose journal is longer on another host.
    pub(super) async fn newer_elsewhere(
        &self,
        id: &RunId,
        here: Option<&RunDir>,
    ) -> Result<Option<IndexedRun>, Problem> {
        if !self.store.is_shared() || is_live(here)? {
            return Ok(None);
        }
        let updated = match here.cloned() {
            None => None,
            Some(run) => {
                let journals = self.index.journals();
                let newest = blocking(move || {
                    let line = journals.read(&run, |lines| lines.last().map(|line| line.at))?;
                    Ok(line.unwrap_or(run.facts().created))
                });
                Some(newest.await?.as_millisecond())
            }
        };
        let row = self.store.listed_run(id).await?.map(|listed| listed.run);
        let is_newer =
            |row: &IndexedRun| updated.is_none_or(|updated| row.updated.as_millisecond() > updated);
        Ok(row.filter(is_newer))
    }
}

fn is_live(here: Option<&RunDir>) -> Result<bool, Problem> {
    Ok(here.map(RunDir::holder).transpose()?.flatten().is_some())
}
