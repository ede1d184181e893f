//! Issues, their events and what they wait for.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Call, comments, labels};
use crate::fake_github::contract::complete_as;
use crate::fake_github::reply::{Handled, Reply};
use crate::fake_github::world::{Issue, World, user};

/// The longest text, in characters.
const LONGEST_BODY: usize = 65_536;

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    match call.operation.id {
        "issues/list-for-repo" => list(call),
        "issues/create" => create(call),
        "issues/get" => get(call),
        "issues/update" => update(call),
        "issues/list-events" | "issues/list-events-for-timeline" => list_events(call),
        "issues/list-dependencies-blocked-by" => list_blocked_by(call),
        "issues/add-blocked-by-dependency" => add_blocked_by(call),
        "issues/list-dependencies-blocking" => list_blocking(call),
        id if id.contains("comment") => comments::handle(call),
        _ => labels::handle(call),
    }
}

/// An issue that is about to be made.
pub(in crate::fake_github) struct NewIssue {
    pub title: String,
    pub body: Option<String>,
    pub user: String,
}

impl NewIssue {
    /// Adds it to a repository and returns its number.
    pub(in crate::fake_github) fn add(self, world: &mut World, repo: usize) -> u64 {
        let (id, now) = (world.new_id(), world.stamp());
        let issues = &mut world.repos[repo].issues;
        let number = issues.keys().next_back().copied().unwrap_or(0) + 1;
        let issue = Issue {
            id,
            number,
            title: self.title,
            body: self.body,
            open: true,
            user: self.user,
            labels: Vec::new(),
            comments: Vec::new(),
            events: Vec::new(),
            blocked_by: BTreeSet::new(),
            created_at: now.clone(),
            updated_at: now,
            closed_at: None,
            pull: None,
        };
        issues.insert(number, issue);
        number
    }
}

/// Refuses a body that is too long.
pub(super) fn check_body(resource: &str, fields: &Value) -> Result<(), Reply> {
    let length = fields["body"].as_str().unwrap_or_default().chars().count();
    if length > LONGEST_BODY {
        let message = format!("body is too long (maximum is {LONGEST_BODY} characters)");
        return Err(Reply::invalid(resource, "body", "custom", &message));
    }
    Ok(())
}

/// Records who did something to an issue.
pub(in crate::fake_github) fn record_event(
    world: &mut World,
    repo: usize,
    number: u64,
    actor: &str,
    event: &str,
    details: Value,
) {
    let (id, now) = (world.new_id(), world.stamp());
    let Some(issue) = world.repos[repo].issues.get_mut(&number) else {
        return;
    };
    let mut record = json!({
        "id": id,
        "node_id": format!("EV_{id}"),
        "actor": user(actor),
        "event": event,
        "commit_id": null,
        "commit_url": null,
        "created_at": now,
        "performed_via_github_app": null,
    });
    if let (Some(fields), Value::Object(details)) = (record.as_object_mut(), details) {
        fields.extend(details);
    }
    let schema = match event {
        "labeled" => "labeled-issue-event",
        "unlabeled" => "unlabeled-issue-event",
        "renamed" => "renamed-issue-event",
        _ => "state-change-issue-event",
    };
    issue.events.push(complete_as(schema, record));
    issue.updated_at = now;
}

/// The issues, and the pull requests, which are issues too.
fn list(call: &Call<'_>) -> Handled {
    let state = call.asked_for("state").unwrap_or("open");
    let wanted: Vec<String> = call
        .asked_for("labels")
        .into_iter()
        .flat_map(|labels| labels.split(','))
        .map(|label| label.trim().to_lowercase())
        .filter(|label| !label.is_empty())
        .collect();
    let since = call.asked_for("since").unwrap_or_default();
    let creator = call.asked_for("creator");
    let is_asked_for = |issue: &&Issue| {
        (state == "all" || (state == "open") == issue.open)
            && wanted.iter().all(|label| issue.labels.contains(label))
            && issue.updated_at.as_str() >= since
            && creator.is_none_or(|creator| creator == issue.user)
    };
    let mut issues: Vec<&Issue> = call.repo().issues.values().filter(is_asked_for).collect();
    let is_by_update = call.asked_for("sort") == Some("updated");
    issues.sort_by_key(|issue| (is_by_update.then_some(&issue.updated_at), issue.number));
    if call.asked_for("direction") != Some("asc") {
        issues.reverse();
    }
    call.page(issues.into_iter().map(|issue| call.issue_json(issue)).collect())
}

fn get(call: &Call<'_>) -> Handled {
    Reply::ok(call.issue_json(call.issue()?))
}

fn create(call: &mut Call<'_>) -> Handled {
    check_body("Issue", &call.body)?;
    let new = NewIssue {
        title: match &call.body["title"] {
            Value::String(title) => title.clone(),
            title => title.to_string(),
        },
        body: call.body["body"].as_str().map(str::to_owned),
        user: call.caller.login().to_owned(),
    };
    let number = new.add(call.world, call.repo);
    // Labels of people who may not set them are left out without an error.
    if call.caller.role(call.repo()) >= crate::fake_github::world::Role::Write {
        let actor = call.caller.login().to_owned();
        for name in labels::names(&call.body) {
            labels::add_label(call.world, call.repo, number, &actor, &name);
        }
    }
    let issue = call.repo().issues.get(&number).ok_or_else(Reply::not_found)?;
    Reply::created(call.issue_json(issue))
}

fn update(call: &mut Call<'_>) -> Handled {
    let number = call.issue()?.number;
    check_body("Issue", &call.body)?;
    if call.text("state") == "open"
        && let Some(refusal) = super::reopen_refusal(call.repo(), number)
    {
        return Err(refusal);
    }
    change(call, number)?;
    if call.body.get("labels").is_some() {
        labels::replace(call, number);
    }
    get(call)
}

/// Sets title, body and state, as the body of the request says.
pub(super) fn change(call: &mut Call<'_>, number: u64) -> Result<(), Reply> {
    let now = call.world.stamp();
    let fields = call.body.clone();
    let actor = call.caller.login().to_owned();
    let issue = call
        .repo_mut()
        .issues
        .get_mut(&number)
        .ok_or_else(Reply::not_found)?;
    issue.updated_at.clone_from(&now);
    let mut renamed = None;
    if let Some(title) = fields["title"].as_str().filter(|title| *title != issue.title) {
        renamed = Some(json!({ "rename": { "from": issue.title, "to": title } }));
        title.clone_into(&mut issue.title);
    }
    match fields.get("body") {
        Some(Value::String(body)) => issue.body = Some(body.clone()),
        Some(Value::Null) => issue.body = None,
        _ => {}
    }
    let state = match (fields["state"].as_str(), issue.open) {
        (Some("closed"), true) => {
            issue.close(&now);
            Some("closed")
        }
        (Some("open"), false) => {
            issue.reopen(&now);
            Some("reopened")
        }
        _ => None,
    };
    if let Some(details) = renamed {
        record_event(call.world, call.repo, number, &actor, "renamed", details);
    }
    if let Some(event) = state {
        record_event(call.world, call.repo, number, &actor, event, Value::Null);
    }
    Ok(())
}

fn list_events(call: &Call<'_>) -> Handled {
    let issue = call.issue()?;
    let mut events = issue.events.clone();
    for event in &mut events {
        event["url"] = json!(call.repo_url(&format!("/issues/events/{}", event["id"])));
    }
    if call.operation.id == "issues/list-events-for-timeline" {
        events.extend(issue.comments.iter().map(|comment| {
            let mut shape = call.comment_json(issue.number, comment);
            shape["event"] = json!("commented");
            shape["actor"] = user(&comment.user);
            complete_as("timeline-comment-event", shape)
        }));
        events.sort_by_key(|event| event["id"].as_u64());
    }
    call.page(events)
}

fn list_blocked_by(call: &Call<'_>) -> Handled {
    let numbers = call.issue()?.blocked_by.iter();
    let issues = numbers.filter_map(|number| call.repo().issues.get(number));
    call.page(issues.map(|issue| call.issue_json(issue)).collect())
}

fn add_blocked_by(call: &mut Call<'_>) -> Handled {
    let number = call.issue()?.number;
    let id = call.body["issue_id"].as_u64();
    let blocking = call.repo().issues.values().find(|issue| Some(issue.id) == id);
    let blocking = blocking.ok_or_else(Reply::not_found)?.number;
    if blocking == number {
        return Err(Reply::invalid(
            "IssueDependency",
            "issue_id",
            "invalid",
            "an issue cannot block itself",
        ));
    }
    call.issue_mut()?.blocked_by.insert(blocking);
    let issue = call.repo().issues.get(&blocking).ok_or_else(Reply::not_found)?;
    Reply::created(call.issue_json(issue))
}

fn list_blocking(call: &Call<'_>) -> Handled {
    let number = call.issue()?.number;
    let issues = call
        .repo()
        .issues
        .values()
        .filter(|issue| issue.blocked_by.contains(&number));
    call.page(issues.map(|issue| call.issue_json(issue)).collect())
}
