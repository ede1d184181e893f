//! All operations.

use axum::http::{Method, StatusCode};
use serde_json::{Map, Value};

use crate::assembly::DashboardMode;
use crate::store::ApiScope;

use super::openapi::document;
use super::operation::Operation;
use super::{
    change, create, export, host, iterations, lint, log, login, metrics, run_list, runs, share, socket, steer,
};

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

/// Every operation of the API.
pub(super) fn operations() -> Vec<Operation> {
    let groups = [
        service_operations(),
        run_operations(),
        iteration_operations(),
        content_operations(),
        order_operations(),
        request_operations(),
        command_operations(),
        sharing_operations(),
        change_operations(),
        host_operations(),
        resource_operations(),
    ];
    groups.into_iter().flatten().collect()
}

fn service_operations() -> Vec<Operation> {
    let (health, login) = (
        "Whether the service answers",
        "Exchange the secret of a login link for a session cookie",
    );
    let counts = "What the runs of this process did, and the runs of the store by state, in the text format of Prometheus";
    let events = "A WebSocket with the events of runs. It takes `{\"subscribe\": RUN, \"after\": ID}` and \
                  `{\"unsubscribe\": RUN}`; with `\"brief\": true` a message has the kinds of many events in \
                  place of the events; in place of a run, `runs` is the list of runs";
    vec![
        Operation::new(GET, "/api/health", "health", health, login::health)
            .scope(None)
            .returns::<login::Health>(),
        Operation::new(GET, "/metrics", "metrics", counts, metrics::metrics)
            .returns_text(metrics::TEXT_FORMAT),
        Operation::new(POST, "/api/login", "login", login, login::login)
            .scope(None)
            .body::<login::LoginRequest>()
            .returns::<login::Session>(),
        Operation::new(
            POST,
            "/api/logout",
            "logout",
            "End all login sessions of this name",
            login::logout,
        )
        .status(StatusCode::NO_CONTENT),
        Operation::new(
            GET,
            "/api/session",
            "session",
            "Who asks, and with which scope",
            login::session,
        )
        .returns::<login::Session>(),
        Operation::new(
            POST,
            "/api/lint",
            "lintTask",
            "Check the text of a task, and change nothing",
            lint::check,
        )
        .body::<steer::TaskText>()
        .returns::<lint::LintReport>(),
        Operation::new(GET, "/api/openapi.json", "openapi", "This document", document)
            .returns::<Map<String, Value>>(),
        Operation::new(GET, "/api/events", "events", events, socket::connect)
            .status(StatusCode::SWITCHING_PROTOCOLS),
    ]
}

fn run_operations() -> Vec<Operation> {
    let create = "Create a run and queue it for `ralph worker`. With `Idempotency-Key`, repeating it creates nothing new";
    let delete = "Remove a run at rest: sandbox, refs and directory. Its branch stays";
    vec![
        Operation::new(GET, "/api/runs", "listRuns", "Runs, newest first", run_list::list)
            .parameters::<run_list::RunPage>()
            .returns::<run_list::RunList>(),
        Operation::new(POST, "/api/runs", "createRun", create, create::create)
            .scope(Some(ApiScope::Admin))
            .status(StatusCode::CREATED)
            .body::<create::NewRunRequest>()
            .returns::<create::QueuedRunId>(),
        Operation::new(GET, "/api/runs/{run}", "getRun", "The state of a run", runs::get)
            .returns::<runs::RunDetails>(),
        Operation::new(DELETE, "/api/runs/{run}", "removeRun", delete, steer::remove)
            .scope(Some(ApiScope::Admin))
            .status(StatusCode::NO_CONTENT),
        Operation::new(
            GET,
            "/api/runs/{run}/usage",
            "getUsage",
            "The limits of the run, what is used of them, and what each checkbox cost",
            runs::usage,
        )
        .returns::<crate::assembly::RunUsage>(),
        Operation::new(
            GET,
            "/api/runs/{run}/pull-request",
            "getPullRequest",
            "The pull request, as it was when it was opened or updated last",
            runs::pull_request,
        )
        .returns::<crate::assembly::RunPullRequest>(),
        Operation::new(
            GET,
            "/api/runs/{run}/evidence",
            "getEvidence",
            "The newest evidence",
            runs::evidence,
        )
        .returns::<runs::EvidenceReport>(),
    ]
}

fn iteration_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            GET,
            "/api/runs/{run}/iterations",
            "listIterations",
            "Its iterations, oldest first",
            iterations::iterations,
        )
        .parameters::<iterations::IterationPage>()
        .returns::<iterations::IterationList>(),
        Operation::new(
            GET,
            "/api/runs/{run}/iterations/{iteration}",
            "getIteration",
            "Everything that is recorded of an iteration",
            iterations::iteration,
        )
        .returns::<Map<String, Value>>(),
        Operation::new(
            GET,
            "/api/runs/{run}/course",
            "getCourse",
            "Cost, time and loop score of each of its iterations, oldest first",
            iterations::course,
        )
        .returns::<iterations::RunCourse>(),
    ]
}

fn content_operations() -> Vec<Operation> {
    let diff = "What the run changed since its base, or in one iteration, uncommitted work included";
    let events = "Events after an id, oldest first";
    let file = "A file of the run: its task, or one below `.ralph/`";
    vec![
        Operation::new(
            GET,
            "/api/runs/{run}/log",
            "listLogLines",
            "Lines of the log as text, by kind or by what is searched for",
            log::log,
        )
        .parameters::<log::LogPage>()
        .returns::<log::LogLines>(),
        Operation::new(GET, "/api/runs/{run}/events", "listEvents", events, runs::events)
            .parameters::<runs::EventPage>()
            .returns::<runs::EventList>(),
        Operation::new(GET, "/api/runs/{run}/diff", "getDiff", diff, runs::diff)
            .parameters::<runs::DiffChoice>()
            .returns::<runs::DiffText>(),
        Operation::new(
            GET,
            "/api/runs/{run}/files",
            "listFiles",
            "The files of the run",
            runs::files,
        )
        .returns::<runs::FileList>(),
        Operation::new(GET, "/api/runs/{run}/file", "getFile", file, runs::file)
            .parameters::<runs::FileChoice>()
            .returns::<runs::FileText>(),
        Operation::new(
            GET,
            "/api/runs/{run}/network",
            "getNetwork",
            "The hosts that it reached, and those that were blocked",
            runs::network,
        )
        .returns::<runs::NetworkReport>(),
    ]
}

/// What is asked of a run without a body.
fn order_operations() -> Vec<Operation> {
    let pause = "Pause after the current iteration";
    let rotate = "End the current iteration and start the next one";
    let doctor = "Ask the doctor after this iteration";
    let resume = "Queue a run at rest, so that `ralph worker` goes on with it";
    vec![
        steering(POST, "/api/runs/{run}/pause", "pauseRun", pause, steer::pause),
        steering(POST, "/api/runs/{run}/rotate", "rotateRun", rotate, steer::rotate),
        steering(POST, "/api/runs/{run}/stop", "stopRun", "Stop now", steer::stop),
        Operation::new(
            POST,
            "/api/runs/{run}/resume",
            "resumeRun",
            resume,
            create::resume,
        )
        .scope(Some(ApiScope::Steer))
        .status(StatusCode::ACCEPTED)
        .returns::<create::QueuedRunId>(),
        steering(POST, "/api/runs/{run}/doctor", "askDoctor", doctor, steer::doctor),
    ]
}

fn request_operations() -> Vec<Operation> {
    let retry = "Go back to the code as it was after an iteration";
    let edit = "Give the run another text of its task. The linter checks it first";
    let diagnosis = "Ask for what the newest diagnosis proposes";
    vec![
        steering(
            POST,
            "/api/runs/{run}/notes",
            "addNote",
            "Add a note to the next prompt",
            steer::note,
        )
        .mode(DashboardMode::Guided)
        .body::<crate::state::StructuredNote>(),
        steering(
            POST,
            "/api/runs/{run}/signs",
            "addSign",
            "Add a sign to the guardrails",
            steer::sign,
        )
        .body::<crate::state::Sign>(),
        steering(
            POST,
            "/api/runs/{run}/profile",
            "chooseProfile",
            "Go on with another model profile",
            steer::profile,
        )
        .body::<steer::ProfileChoice>(),
        steering(
            POST,
            "/api/runs/{run}/hosts",
            "allowHosts",
            "Let the sandbox reach more hosts",
            steer::hosts,
        )
        .body::<steer::AllowedHosts>(),
        steering(POST, "/api/runs/{run}/retry", "retryRun", retry, steer::retry).body::<steer::RetryFrom>(),
        steering(PUT, "/api/runs/{run}/task", "editTask", edit, steer::edit).body::<steer::TaskText>(),
        Operation::new(
            POST,
            "/api/runs/{run}/diagnosis",
            "applyDiagnosis",
            diagnosis,
            steer::diagnosis,
        )
        .scope(Some(ApiScope::Steer))
        .status(StatusCode::ACCEPTED)
        .body::<steer::DiagnosisChoice>()
        .returns::<steer::AppliedDiagnosis>(),
    ]
}

/// A run for others to look at: as a file, or by a link.
fn sharing_operations() -> Vec<Operation> {
    let path = "/api/runs/{run}/share";
    let admin = Some(ApiScope::Admin);
    let export = "The run as one HTML file without scripts, which loads nothing: state, task, iterations, changes, log. Known secrets are left out";
    let create = "A link with which others can look at this run, and at nothing else, until it ends";
    let revoke = "End all such links of this run, and the sessions that they opened";
    vec![
        Operation::new(GET, "/api/runs/{run}/export", "exportRun", export, export::export)
            .returns_text(export::HTML),
        Operation::new(POST, path, "shareRun", create, share::create)
            .scope(admin)
            .status(StatusCode::CREATED)
            .body::<share::ShareRequest>()
            .returns::<share::ShareLink>(),
        Operation::new(DELETE, path, "unshareRun", revoke, share::revoke)
            .scope(admin)
            .status(StatusCode::NO_CONTENT),
    ]
}

/// Commands of a list, in the sandbox of a run.
fn command_operations() -> Vec<Operation> {
    let path = "/api/runs/{run}/commands";
    let list = "The commands that can be run in the sandbox: the tests of the task, and `dashboard.commands`";
    let run = "Run a command of the list in the sandbox before the next iteration. Its output is in the log and in `.ralph/commands/`";
    vec![
        Operation::new(GET, path, "listCommands", list, steer::commands).returns::<steer::CommandList>(),
        steering(POST, path, "runCommand", run, steer::run_command)
            .mode(DashboardMode::Debug)
            .body::<steer::CommandChoice>(),
    ]
}

fn change_operations() -> Vec<Operation> {
    let update = "Change what can change after the creation: task, profile, hosts. Nothing is changed if a part is refused";
    let write = "Give a file of the run another text: the task, or guardrails and notes, which can only be appended to";
    vec![
        Operation::new(PATCH, "/api/runs/{run}", "updateRun", update, change::update)
            .scope(Some(ApiScope::Steer))
            .status(StatusCode::ACCEPTED)
            .body::<change::RunChanges>()
            .returns::<change::RequestList>(),
        steering(
            PUT,
            "/api/runs/{run}/file",
            "writeFile",
            write,
            change::write_file,
        )
        .body::<change::WrittenFile>(),
        Operation::new(
            GET,
            "/api/runs/{run}/sandbox",
            "getSandbox",
            "Where the run works: provider, limits, sandboxes",
            change::sandbox,
        )
        .returns::<crate::assembly::RunSandbox>(),
        Operation::new(
            GET,
            "/api/runs/{run}/preview",
            "getPreview",
            "A link that opens a port of the sandbox in a browser",
            change::preview,
        )
        .scope(Some(ApiScope::Steer))
        .parameters::<change::PortChoice>()
        .returns::<change::PreviewLink>(),
    ]
}

fn resource_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            GET,
            "/api/images",
            "listImages",
            "The images that ralph built or pulled",
            change::images,
        )
        .returns::<change::ImageList>(),
        Operation::new(
            GET,
            "/api/workers",
            "listWorkers",
            "The workers that have runs, and the runs that they have",
            change::workers,
        )
        .returns::<change::WorkerList>(),
    ]
}

fn host_operations() -> Vec<Operation> {
    let path = "/api/credentials/{credential}";
    let admin = Some(ApiScope::Admin);
    let check = "Ask the service whether it accepts the credential";
    vec![
        Operation::new(
            GET,
            "/api/models",
            "listModels",
            "The model profiles",
            host::models,
        )
        .returns::<host::ModelList>(),
        Operation::new(
            GET,
            "/api/settings",
            "listSettings",
            "The configuration: every value with where it comes from, as `ralph config show` prints it",
            host::settings,
        )
        .scope(admin)
        .returns::<host::SettingList>(),
        Operation::new(
            GET,
            "/api/credentials",
            "listCredentials",
            "Which credentials of model services are stored; never their values",
            host::credentials,
        )
        .returns::<host::CredentialList>(),
        Operation::new(PUT, path, "storeCredential", "Store a credential", host::store)
            .scope(admin)
            .status(StatusCode::NO_CONTENT)
            .body::<host::CredentialValue>(),
        Operation::new(
            DELETE,
            path,
            "removeCredential",
            "Remove a credential",
            host::remove,
        )
        .scope(admin)
        .status(StatusCode::NO_CONTENT),
        Operation::new(
            POST,
            "/api/credentials/{credential}/check",
            "checkCredential",
            check,
            host::check,
        )
        .scope(admin)
        .status(StatusCode::NO_CONTENT),
    ]
}

/// An operation that leaves a request in the inbox of a run.
fn steering<H, T>(
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    handler: H,
) -> Operation
where
    H: axum::handler::Handler<T, std::sync::Arc<super::Api>>,
    T: 'static,
{
    Operation::new(method, path, id, summary, handler)
        .scope(Some(ApiScope::Steer))
        .status(StatusCode::ACCEPTED)
        .returns::<crate::assembly::InterventionStatus>()
}
