//! Check runs, workflow runs, jobs and their logs.

use serde_json::{Value, json};

use super::Call;
use crate::fake_github::reply::{Handled, Reply};
use crate::fake_github::world::JobLog;

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    match call.operation.id {
        "checks/list-for-ref" => list_check_runs(call),
        "checks/get" => one(call, &call.repo().check_runs, "check_run_id"),
        "checks/create" => create_check_run(call),
        "actions/list-workflow-runs-for-repo" => list_runs(call),
        "actions/get-workflow-run" => one(call, &call.repo().runs, "run_id"),
        "actions/list-jobs-for-workflow-run" => list_jobs(call),
        "actions/download-job-logs-for-workflow-run" => logs(call),
        _ => call.not_implemented(),
    }
}

fn one(call: &Call<'_>, list: &[Value], parameter: &str) -> Handled {
    let id = call.number(parameter)?;
    let found = list.iter().find(|item| item["id"] == id);
    Reply::ok(found.cloned().ok_or_else(Reply::not_found)?)
}

/// The check runs of a commit. As on GitHub, `filter` is `latest` by default: only the last of each name and app.
fn list_check_runs(call: &Call<'_>) -> Handled {
    let name = call.operation.parameter("ref");
    let message = format!("No commit found for SHA: {name}");
    let sha = call
        .repo()
        .commit_of(name)
        .ok_or_else(|| Reply::refuse(422, &message))?;
    let is_asked_for = |run: &&Value| {
        let is = |query: &str, field: &str| call.asked_for(query).is_none_or(|value| run[field] == value);
        run["head_sha"] == sha && is("check_name", "name") && is("status", "status")
    };
    let mut runs: Vec<Value> = Vec::new();
    let is_latest_only = call.asked_for("filter").unwrap_or("latest") == "latest";
    for run in call.repo().check_runs.iter().rev().filter(is_asked_for) {
        // The latest of each suite: two workflows may have jobs of the same name.
        let key = |run: &Value| {
            (
                run["name"].clone(),
                run["app"]["id"].clone(),
                run["check_suite"]["id"].clone(),
            )
        };
        let same = |known: &Value| key(known) == key(run);
        if !is_latest_only || !runs.iter().any(same) {
            runs.push(run.clone());
        }
    }
    call.page_of("check_runs", runs)
}

/// Only Apps may do this.
fn create_check_run(call: &mut Call<'_>) -> Handled {
    if call.caller.kind() != "integration" {
        return Err(call.forbidden());
    }
    let (id, now) = (call.world.new_id(), call.world.stamp());
    let mut run = call.body.clone();
    run["id"] = json!(id);
    run["started_at"] = json!(now);
    if run.get("status").is_none() {
        run["status"] = json!("queued");
    }
    call.repo_mut().check_runs.push(run.clone());
    Reply::created(run)
}

fn list_runs(call: &Call<'_>) -> Handled {
    let is_asked_for = |run: &&Value| {
        let is = |query: &str, field: &str| call.asked_for(query).is_none_or(|value| run[field] == value);
        let has_status = is("status", "status") || is("status", "conclusion");
        is("head_sha", "head_sha") && is("branch", "head_branch") && is("event", "event") && has_status
    };
    let runs = call.repo().runs.iter().rev().filter(is_asked_for);
    call.page_of("workflow_runs", runs.cloned().collect())
}

fn list_jobs(call: &Call<'_>) -> Handled {
    let run = call.number("run_id")?;
    if call.repo().runs.iter().all(|known| known["id"] != run) {
        return Err(Reply::not_found());
    }
    let jobs = call.repo().jobs.iter().filter(|job| job["run_id"] == run);
    call.page_of("jobs", jobs.cloned().collect())
}

/// Sends the client to the store of logs, which answers 404 while there is none.
fn logs(call: &Call<'_>) -> Handled {
    let job = call.number("job_id")?;
    match call.repo().job_logs.get(&job) {
        None => Err(Reply::not_found()),
        Some(JobLog::Expired) => Err(Reply::refuse(410, "Gone")),
        Some(_) => {
            let location = format!("{}/logs/{job}?sig=abc", call.blob_url);
            let reply = Reply {
                status: 302,
                headers: Vec::new(),
                body: None,
            };
            Ok(reply.with("location", location))
        }
    }
}
