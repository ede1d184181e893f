//! One mutation of the GraphQL API: `markPullRequestReadyForReview`, which REST does not have.

use serde_json::{Map, Value, json};

use super::Call;
use super::shapes::node_id;
use crate::fake_github::auth::Caller;
use crate::fake_github::reply::{Handled, Reply};

const MUTATION: &str = "markPullRequestReadyForReview";

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    if matches!(call.caller, Caller::Nobody | Caller::App(_)) {
        return Err(Reply::refuse(
            401,
            "This endpoint requires you to be authenticated.",
        ));
    }
    let query = call.text("query").to_owned();
    if !query.trim_start().starts_with("mutation") || !query.contains(MUTATION) {
        return failure(
            "undefinedField",
            "the fake knows the mutation markPullRequestReadyForReview only",
        );
    }
    let Some(wanted) = pull_request_id(&call.body["variables"], &query) else {
        return failure(
            "missingRequiredInputObjectAttribute",
            "Argument 'pullRequestId' is required",
        );
    };
    let found = call.world.repos.iter().enumerate().find_map(|(place, repo)| {
        let issues = repo.issues.values().filter(|issue| issue.pull.is_some());
        let issue = issues.into_iter().find(|issue| node_id(issue) == wanted)?;
        Some((place, issue.number))
    });
    let Some((place, number)) = found else {
        let message = format!("Could not resolve to a node with the global id of '{wanted}'");
        return failure("NOT_FOUND", &message);
    };
    call.repo = place;
    let may = call.caller.has("pull_requests", true)
        && call.caller.role(call.repo()) >= crate::fake_github::world::Role::Write;
    if !may {
        return failure(
            "FORBIDDEN",
            &format!("Resource not accessible by {}", call.caller.kind()),
        );
    }
    if let Some(issue) = call.repo_mut().issues.get_mut(&number)
        && let Some(pull) = &mut issue.pull
    {
        pull.draft = false;
    }
    let shown = selection(call, &query, number)?;
    Reply::ok(json!({ "data": { MUTATION: shown } }))
}

/// The identifier in the variables, or in the text.
fn pull_request_id(variables: &Value, query: &str) -> Option<String> {
    let in_variables = || match variables {
        Value::Object(fields) => fields.values().find_map(|value| match value {
            Value::String(text) if text.starts_with("PR_") => Some(text.clone()),
            Value::Object(inner) => inner["pullRequestId"].as_str().map(str::to_owned),
            _ => None,
        }),
        _ => None,
    };
    let in_text = || {
        query
            .split('"')
            .find(|part| part.starts_with("PR_"))
            .map(str::to_owned)
    };
    in_variables().or_else(in_text)
}

/// What the text selects of the pull request. Fields that it does not select are not answered.
fn selection(call: &Call<'_>, query: &str, number: u64) -> Result<Value, Reply> {
    let (issue, pull) = call.repo().pull(number).ok_or_else(Reply::not_found)?;
    let url = format!("{}/{}/pull/{number}", call.url, call.repo().name);
    let known = json!({
        "id": node_id(issue), "number": number, "isDraft": pull.draft, "url": url, "title": issue.title,
        "state": if issue.open { "OPEN" } else { "CLOSED" }, "headRefOid": pull.head_sha,
    });
    let fields = query
        .split_once("pullRequest")
        .map(|(_, rest)| rest)
        .unwrap_or_default();
    // The first `pullRequest` may be that of `pullRequestId`; the selection is the last one with braces.
    let inner = fields.rsplit_once("pullRequest").map_or(fields, |(_, rest)| rest);
    let inner = inner.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let mut selected = Map::new();
    for name in inner
        .map(|(inner, _)| inner)
        .unwrap_or_default()
        .split_whitespace()
    {
        let value = known.get(name).cloned();
        let message = format!("Field '{name}' doesn't exist on type 'PullRequest'");
        selected.insert(
            name.to_owned(),
            value.ok_or_else(|| Reply::new(200, error("undefinedField", &message)))?,
        );
    }
    Ok(json!({ "pullRequest": selected }))
}

fn failure(kind: &str, message: &str) -> Handled {
    Reply::ok(error(kind, message))
}

fn error(kind: &str, message: &str) -> Value {
    json!({ "data": null, "errors": [{ "type": kind, "message": message }] })
}
