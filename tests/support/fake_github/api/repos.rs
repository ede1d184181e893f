//! Repositories, branches, rules, permissions and commit statuses.

use serde_json::{Value, json};

use super::Call;
use crate::fake_github::reply::{Handled, Reply};
use crate::fake_github::world::{Protection, Role, user};

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    match call.operation.id {
        "repos/get" => Reply::ok(call.repo_json()),
        "repos/get-branch" => get_branch(call),
        "repos/get-branch-protection" => get_protection(call),
        "repos/get-branch-rules" => get_rules(call),
        "repos/get-collaborator-permission-level" => get_permission(call),
        "repos/create-commit-status" => create_status(call),
        "repos/list-commit-statuses-for-ref" => list_statuses(call),
        "repos/get-combined-status-for-ref" => combined_status(call),
        "repos/get-content" => get_content(call),
        _ => call.not_implemented(),
    }
}

fn get_branch(call: &Call<'_>) -> Handled {
    let branch = call.operation.parameter("branch");
    let sha = call.repo().seen_ref(&format!("refs/heads/{branch}"));
    let sha = sha.ok_or_else(|| Reply::refuse(404, "Branch not found"))?;
    let url = call.repo_url(&format!("/branches/{branch}"));
    Reply::ok(json!({
        "name": branch,
        "commit": commit_json(call, &sha),
        "protected": call.repo().protected.contains_key(branch),
        "_links": { "self": url, "html": format!("{}/{}/tree/{branch}", call.url, call.repo().name) },
        "protection_url": format!("{url}/protection"),
    }))
}

/// A commit as branches and pull requests have it.
pub(super) fn commit_json(call: &Call<'_>, sha: &str) -> Value {
    let git_commit = super::git_data::commit_json(call, sha).unwrap_or_default();
    json!({
        "sha": sha,
        "node_id": format!("C_{sha}"),
        "url": call.repo_url(&format!("/commits/{sha}")),
        "html_url": format!("{}/{}/commit/{sha}", call.url, call.repo().name),
        "commit": {
            "message": git_commit["message"],
            "author": git_commit["author"],
            "committer": git_commit["committer"],
            "tree": git_commit["tree"],
            "comment_count": 0,
            "url": git_commit["url"],
        },
        "author": user(git_commit["author"]["name"].as_str().unwrap_or_default()),
        "committer": user(git_commit["committer"]["name"].as_str().unwrap_or_default()),
        "parents": git_commit["parents"],
    })
}

fn get_protection(call: &Call<'_>) -> Handled {
    let branch = call.operation.parameter("branch");
    match call.repo().protected.get(branch) {
        Some(protection) => Reply::ok(json!({
            "enabled": true,
            "allow_force_pushes": { "enabled": false },
            "lock_branch": { "enabled": *protection == Protection::PullRequestOnly },
        })),
        None => Err(Reply::refuse(404, "Branch not protected")),
    }
}

/// The rules that hold for a branch; those of a branch that does not exist too.
fn get_rules(call: &Call<'_>) -> Handled {
    let protection = call.repo().protected.get(call.operation.parameter("branch"));
    let kinds: &[&str] = match protection {
        None => &[],
        Some(Protection::NoForcePush) => &["non_fast_forward", "deletion"],
        Some(Protection::PullRequestOnly) => &["pull_request", "non_fast_forward", "deletion"],
    };
    let parameters = json!({
        "dismiss_stale_reviews_on_push": false,
        "require_code_owner_review": false,
        "require_last_push_approval": false,
        "required_approving_review_count": 1,
        "required_review_thread_resolution": false,
    });
    let source = &call.repo().name;
    let rules = kinds.iter().map(|kind| {
        let mut rule = json!({
            "type": kind, "ruleset_source_type": "Repository", "ruleset_source": source, "ruleset_id": 1,
        });
        if *kind == "pull_request" {
            rule["parameters"] = parameters.clone();
        }
        rule
    });
    call.page(rules.collect())
}

fn get_permission(call: &Call<'_>) -> Handled {
    let login = call.operation.parameter("username");
    let repo = call.repo();
    let role = repo.role(login);
    let mut person = user(login);
    person["permissions"] = json!({
        "pull": role >= Role::Read, "triage": role >= Role::Write, "push": role >= Role::Write,
        "maintain": role == Role::Admin, "admin": role == Role::Admin,
    });
    person["role_name"] = json!(role.word());
    Reply::ok(json!({ "permission": role.word(), "role_name": role.word(), "user": person }))
}

fn create_status(call: &mut Call<'_>) -> Handled {
    let sha = call.operation.parameter("sha").to_owned();
    if call.repo().commit_of(&sha).as_deref() != Some(&sha) {
        return Err(Reply::refuse(422, &format!("No commit found for SHA: {sha}")));
    }
    let now = call.world.stamp();
    let id = call.world.new_id();
    let context = call.body["context"].as_str().unwrap_or("default");
    let status = json!({
        "id": id,
        "node_id": format!("SC_{id}"),
        "url": call.repo_url(&format!("/statuses/{sha}")),
        "avatar_url": null,
        "state": call.body["state"],
        "description": call.body["description"],
        "target_url": call.body["target_url"],
        "context": context,
        "created_at": now,
        "updated_at": now,
        "creator": user(call.caller.login()),
        "sha": sha,
    });
    call.repo_mut().statuses.push(status.clone());
    Reply::created(shown(&status))
}

/// A status without the commit, which GitHub leaves out.
fn shown(status: &Value) -> Value {
    let mut shown = status.clone();
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("sha");
    }
    shown
}

/// The statuses of a commit, the latest first.
fn statuses_of(call: &Call<'_>) -> Result<(String, Vec<Value>), Reply> {
    let name = call.operation.parameter("ref");
    let message = format!("No commit found for SHA: {name}");
    let sha = call
        .repo()
        .commit_of(name)
        .ok_or_else(|| Reply::refuse(422, &message))?;
    let statuses = call
        .repo()
        .statuses
        .iter()
        .rev()
        .filter(|status| status["sha"] == sha);
    let statuses = statuses.map(shown).collect();
    Ok((sha, statuses))
}

fn list_statuses(call: &Call<'_>) -> Handled {
    let (_, statuses) = statuses_of(call)?;
    call.page(statuses)
}

/// The latest status of each context. Without any it is `pending`, and check runs do not count.
fn combined_status(call: &Call<'_>) -> Handled {
    let (sha, statuses) = statuses_of(call)?;
    let mut latest: Vec<Value> = Vec::new();
    for mut status in statuses {
        if latest.iter().all(|known| known["context"] != status["context"]) {
            if let Some(fields) = status.as_object_mut() {
                fields.remove("creator");
            }
            latest.push(status);
        }
    }
    let has = |state: &str| latest.iter().any(|status| status["state"] == state);
    let state = match () {
        () if has("failure") || has("error") => "failure",
        () if latest.is_empty() || has("pending") => "pending",
        () => "success",
    };
    let total = latest.len();
    let (statuses, _) = call.cut(latest);
    Reply::ok(json!({
        "state": state,
        "sha": sha,
        "total_count": total,
        "statuses": statuses,
        "repository": call.repo_json(),
        "commit_url": call.repo_url(&format!("/commits/{sha}")),
        "url": call.repo_url(&format!("/commits/{sha}/status")),
    }))
}

/// A file. The fake answers a directory with 501: ralph never lists one.
fn get_content(call: &Call<'_>) -> Handled {
    use base64::Engine;
    let path = call.operation.parameter("path");
    let repo = call.repo();
    let commit = repo
        .commit_of(call.asked_for("ref").unwrap_or("main"))
        .ok_or_else(Reply::not_found)?;
    let name = format!("{commit}:{path}");
    let kind = repo
        .git(&["cat-file", "-t", &name])
        .map_err(|_| Reply::not_found())?;
    if kind != "blob" {
        return call.not_implemented();
    }
    let output = std::process::Command::new("git")
        .args(["cat-file", "blob", &name])
        .current_dir(&repo.dir)
        .output()
        .unwrap();
    let sha = repo.git(&["rev-parse", &name]).unwrap_or_default();
    let url = call.repo_url(&format!("/contents/{path}"));
    Reply::ok(json!({
        "type": "file",
        "encoding": "base64",
        "size": output.stdout.len(),
        "name": path.rsplit('/').next(),
        "path": path,
        "content": base64::prelude::BASE64_STANDARD.encode(&output.stdout),
        "sha": sha,
        "url": url,
        "_links": { "self": url, "git": null, "html": null },
    }))
}
