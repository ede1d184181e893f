//! What can be asked of runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::assembly::{InterventionStatus, PersonCommand, RunControl};
use crate::state::{DiagnosisParts, Intervention, InterventionRequest, RunDir, Sign, StructuredNote};

use super::elsewhere::AskedRun;
use super::extract::{JsonBody, NamedRun};
use super::problem::Problem;
use super::{Api, Caller};

type Accepted<T> = Result<(StatusCode, Json<T>), Problem>;

fn accepted(request: &InterventionRequest) -> (StatusCode, Json<InterventionStatus>) {
    (StatusCode::ACCEPTED, Json(InterventionStatus::pending(request)))
}

impl Api {
    /// The operations on this run that change what it does, if no other host works on it. Where other hosts reach this service,
    /// a run without isolation is refused: its task is commands on this host.
    pub(super) async fn changing_control(
        &self,
        caller: &Caller,
        run: &RunDir,
    ) -> Result<RunControl, Problem> {
        self.check_here(run).await?;
        let control = self.control(caller);
        if self.refuses_unisolated(caller) && control.is_unisolated(run)? {
            return Err(unisolated(&format!(
                "run `{}` works on this host",
                run.facts().id
            )));
        }
        Ok(control)
    }

    /// Whether runs without isolation are neither created nor changed.
    pub(super) fn refuses_unisolated(&self, caller: &Caller) -> bool {
        let settings = &self.settings;
        let is_reached = settings.is_exposed() || settings.has_proxy() || caller.is_forwarded;
        is_reached && !settings.dangerously_allow_local
    }

    async fn ask(
        &self,
        caller: &Caller,
        run: &AskedRun,
        intervention: Intervention,
    ) -> Accepted<InterventionStatus> {
        let request = match run {
            AskedRun::Elsewhere(row) => self.ask_elsewhere(caller, row, intervention).await?,
            AskedRun::Here(run) if intervention.is_order() => {
                self.control(caller).intervene(run, intervention)?
            }
            AskedRun::Here(run) => {
                let control = self.changing_control(caller, run).await?;
                control.intervene(run, intervention)?
            }
        };
        Ok(accepted(&request))
    }
}

pub(super) fn unisolated(what: &str) -> Problem {
    Problem::forbidden(format!(
        "{what} without isolation, and other hosts can reach this service"
    ))
    .with_hint("use it on 127.0.0.1 without a proxy, or set api.dangerously_allow_local = true")
}

pub(super) async fn pause(
    State(api): State<Arc<Api>>,
    caller: Caller,
    run: AskedRun,
) -> Accepted<InterventionStatus> {
    api.ask(&caller, &run, Intervention::Pause).await
}

pub(super) async fn rotate(
    State(api): State<Arc<Api>>,
    caller: Caller,
    run: AskedRun,
) -> Accepted<InterventionStatus> {
    api.ask(&caller, &run, Intervention::Rotate).await
}

pub(super) async fn stop(
    State(api): State<Arc<Api>>,
    caller: Caller,
    run: AskedRun,
) -> Accepted<InterventionStatus> {
    if let AskedRun::Here(dir) = &run {
        let id = &dir.facts().id;
        if dir.holder()?.is_none() && api.control(&caller).cancel_queued(&api.store, id).await? {
            api.index.report(id);
            let by = &caller.name;
            let request = InterventionRequest::new(Intervention::Stop, by, api.surroundings.now());
            let mut status = InterventionStatus::pending(&request);
            status.state = "done";
            return Ok((StatusCode::ACCEPTED, Json(status)));
        }
    }
    api.ask(&caller, &run, Intervention::Stop).await
}

pub(super) async fn doctor(
    State(api): State<Arc<Api>>,
    caller: Caller,
    run: AskedRun,
) -> Accepted<InterventionStatus> {
    api.ask(&caller, &run, Intervention::Doctor).await
}

pub(super) async fn note(
    State(api): State<Arc<Api>>,
    caller: Caller,
    run: AskedRun,
    JsonBody(note): JsonBody<StructuredNote>,
) -> Accepted<InterventionStatus> {
    let AskedRun::Here(dir) = &run else {
        // The checkboxes of its task are on that host.
        let text = note.rendered();
        return api.ask(&caller, &run, Intervention::Note { text }).await;
    };
    let control = api.changing_control(&caller, dir).await?;
    Ok(accepted(&control.note(dir, &note)?))
}

/// The commands that can be run in the sandbox of a run.
#[derive(Serialize, JsonSchema)]
pub(super) struct CommandList {
    /// The commands. There are no others.
    commands: Vec<PersonCommand>,
}

pub(super) async fn commands(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
) -> Result<Json<CommandList>, Problem> {
    let commands = api.control(&caller).person_commands(&run)?;
    Ok(Json(CommandList { commands }))
}

/// A command of the list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandChoice {
    /// Its name.
    name: String,
}

pub(super) async fn run_command(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
    JsonBody(choice): JsonBody<CommandChoice>,
) -> Accepted<InterventionStatus> {
    let control = api.changing_control(&caller, &run).await?;
    Ok(accepted(&control.run_command(&run, &choice.name)?))
}

pub(super) async fn sign(
    State(api): State<Arc<Api>>,
    caller: Caller,
    run: AskedRun,
    JsonBody(sign): JsonBody<Sign>,
) -> Accepted<InterventionStatus> {
    api.ask(&caller, &run, Intervention::Sign(sign)).await
}

/// A model profile.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileChoice {
    /// Its name.
    name: String,
    /// Only for the next iteration.
    #[serde(default)]
    once: bool,
}

pub(super) async fn profile(
    State(api): State<Arc<Api>>,
    caller: Caller,
    run: AskedRun,
    JsonBody(choice): JsonBody<ProfileChoice>,
) -> Accepted<InterventionStatus> {
    let ProfileChoice { name, once } = choice;
    let AskedRun::Here(dir) = &run else {
        return api.ask(&caller, &run, Intervention::Profile { name, once }).await;
    };
    let control = api.changing_control(&caller, dir).await?;
    Ok(accepted(&control.choose_profile(dir, &name, once).await?))
}

/// Hosts to reach.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AllowedHosts {
    /// Each as `HOST[:PORT]`; ports 80 and 443 by default.
    hosts: Vec<String>,
}

pub(super) async fn hosts(
    State(api): State<Arc<Api>>,
    caller: Caller,
    run: AskedRun,
    JsonBody(allowed): JsonBody<AllowedHosts>,
) -> Accepted<InterventionStatus> {
    let hosts = allowed.hosts;
    api.ask(&caller, &run, Intervention::AllowHosts { hosts }).await
}

/// Where a run goes back to.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryFrom {
    /// The iteration; 0 is the beginning. By default the last good one before the newest.
    #[serde(default)]
    from: Option<u32>,
}

pub(super) async fn retry(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
    JsonBody(retry): JsonBody<RetryFrom>,
) -> Accepted<InterventionStatus> {
    let control = api.changing_control(&caller, &run).await?;
    Ok(accepted(&control.retry(&run, retry.from)?))
}

/// The text of a task.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskText {
    /// The whole text.
    pub(super) text: String,
}

pub(super) async fn edit(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
    JsonBody(task): JsonBody<TaskText>,
) -> Accepted<InterventionStatus> {
    let control = api.changing_control(&caller, &run).await?;
    Ok(accepted(&control.edit(&run, &task.text).await?))
}

/// Which parts of a diagnosis to apply; all by default.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DiagnosisChoice {
    /// Its signs.
    #[serde(default = "yes")]
    signs: bool,
    /// Its edits of the task.
    #[serde(default = "yes")]
    spec: bool,
    /// Its model profile.
    #[serde(default = "yes")]
    profile: bool,
}

fn yes() -> bool {
    true
}

/// A diagnosis, and what was asked for because of it.
#[derive(Serialize, JsonSchema)]
pub(super) struct AppliedDiagnosis {
    /// The text of the diagnosis.
    diagnosis: String,
    /// The requests; what was applied before is left out.
    requests: Vec<InterventionStatus>,
}

pub(super) async fn diagnosis(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
    JsonBody(choice): JsonBody<DiagnosisChoice>,
) -> Accepted<AppliedDiagnosis> {
    let control = api.changing_control(&caller, &run).await?;
    let parts = DiagnosisParts {
        signs: choice.signs,
        spec: choice.spec,
        profile: choice.profile,
    };
    let (diagnosis, requests) = control.apply_diagnosis(&run, parts).await?;
    let requests = requests.iter().map(InterventionStatus::pending).collect();
    Ok((
        StatusCode::ACCEPTED,
        Json(AppliedDiagnosis { diagnosis, requests }),
    ))
}

pub(super) async fn remove(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
) -> Result<StatusCode, Problem> {
    let id = run.facts().id.clone();
    let control = api.control(&caller);
    control.remove_with_queue(Some(&api.store), &run).await?;
    api.index.refresh(vec![id]).await?;
    Ok(StatusCode::NO_CONTENT)
}
