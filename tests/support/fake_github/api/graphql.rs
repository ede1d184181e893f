//! Of the GraphQL API what REST does not have: the mutation `markPullRequestReadyForReview`, a query of review threads, and the
//! mutations that change the labels and the text of an issue with one request.

use serde_json::{Map, Value, json};

use super::labels::{add_label, remove_label};
use super::shapes::node_id;
use super::{Call, issues};
use crate::fake_github::auth::Caller;
use crate::fake_github::reply::{Handled, Reply};
use crate::fake_github::world::Role;

const MUTATION: &str = "markPullRequestReadyForReview";
const ISSUE_MUTATIONS: [&str; 3] = [
    "addLabelsToLabelable(input: {labelableId: $issue, labelIds: $added})",
    "removeLabelsFromLabelable(input: {labelableId: $issue, labelIds: $removed})",
    "updateIssue(input: {id: $issue, body: $body})",
];

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    if matches!(call.caller, Caller::Anonymous | Caller::App(_)) {
        return Err(Reply::refuse(
            401,
            "This endpoint requires you to be authenticated.",
        ));
    }
    let query = call.text("query").to_owned();
    if query.trim_start().starts_with("query") {
        return review_threads(call, &query);
    }
    if query.trim_start().starts_with("mutation") && ISSUE_MUTATIONS.iter().any(|one| query.contains(one)) {
        return change_issue(call, &query);
    }
    if !query.trim_start().starts_with("mutation") || !query.contains(MUTATION) {
        return failure("undefinedField", "the fake does not know this mutation");
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
    let may = call.caller.has("pull_requests", true) && call.caller.role(call.repo()) >= Role::Write;
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

/// Whether each thread of a pull request is resolved, a page at a time. The cursor is a position.
fn review_threads(call: &mut Call<'_>, query: &str) -> Handled {
    let page = query.split_once("reviewThreads(first: ");
    let page = page.and_then(|(_, rest)| rest.split(',').next()?.parse::<usize>().ok());
    let field = |name: &str| {
        let comments = format!("comments(first: 1) {{ nodes {{ number: {name} }} }}");
        let selection = format!("nodes {{ isResolved {comments} }} pageInfo {{ hasNextPage endCursor }}");
        query.contains(&selection)
    };
    let (is_new, is_old) = (field("fullDatabaseId"), field("databaseId"));
    if is_new && call.world.enterprise.is_some() {
        let message = "Field 'fullDatabaseId' doesn't exist on type 'PullRequestReviewComment'";
        return failure("undefinedField", message);
    }
    let (Some(page), true) = (page.filter(|page| *page <= 100), is_new || is_old) else {
        return failure("undefinedField", "the fake knows one query of reviewThreads only");
    };
    let shown = |thread: u64| {
        if is_new {
            json!(thread.to_string())
        } else {
            json!(thread)
        }
    };
    let variables = call.body["variables"].clone();
    let text = |name: &str| variables[name].as_str().unwrap_or_default().to_owned();
    let place = call
        .world
        .find_repo(&format!("{}/{}", text("owner"), text("name")));
    let readable = place.filter(|place| call.caller.role(&call.world.repos[*place]) >= Role::Read);
    let Some(place) = readable else {
        return failure("NOT_FOUND", "Could not resolve to a Repository");
    };
    call.repo = place;
    let Some((_, pull)) = variables["number"]
        .as_u64()
        .and_then(|number| call.repo().pull(number))
    else {
        return failure("NOT_FOUND", "Could not resolve to a PullRequest");
    };
    let first = |comment: &&Value| !comment["in_reply_to_id"].is_u64();
    let from: usize = text("after").parse().unwrap_or(0);
    let threads: Vec<u64> = pull
        .review_comments
        .iter()
        .filter(first)
        .filter_map(|comment| comment["id"].as_u64())
        .collect();
    let nodes: Vec<Value> = threads
        .iter()
        .skip(from)
        .take(page)
        .map(|thread| {
            json!({
                "isResolved": pull.resolved.contains(thread),
                "comments": { "nodes": [{ "number": shown(*thread) }] },
            })
        })
        .collect();
    let end = from + nodes.len();
    let threads = json!({
        "nodes": nodes,
        "pageInfo": { "hasNextPage": end < threads.len(), "endCursor": end.to_string() },
    });
    Reply::ok(json!({ "data": { "repository": { "pullRequest": { "reviewThreads": threads } } } }))
}

/// Changes an issue. GraphQL refuses variables that are declared and not used, and those that are used and not given.
fn change_issue(call: &mut Call<'_>, query: &str) -> Handled {
    let variables = call.body["variables"].clone();
    for name in ["issue", "added", "removed", "body"] {
        let uses = query.matches(&format!("${name}")).count();
        let is_given = !variables[name].is_null();
        if uses == 1 || (uses > 1) != is_given {
            return failure(
                "variableMismatch",
                &format!("Variable ${name} is declared, used or given alone"),
            );
        }
    }
    let wanted = variables["issue"].as_str().unwrap_or_default();
    let found = call.world.repos.iter().enumerate().find_map(|(place, repo)| {
        let issue = repo
            .issues
            .values()
            .find(|issue| format!("I_{}", issue.id) == wanted)?;
        Some((place, issue.number))
    });
    let Some((place, number)) = found else {
        let message = format!("Could not resolve to a node with the global id of '{wanted}'");
        return failure("NOT_FOUND", &message);
    };
    call.repo = place;
    let role = call.caller.role(call.repo());
    if !call.caller.has("issues", true) || role < crate::fake_github::world::Role::Write {
        let message = format!("Resource not accessible by {}", call.caller.kind());
        return failure("FORBIDDEN", &message);
    }
    let actor = call.caller.login().to_owned();
    for (list, adds) in [("added", true), ("removed", false)] {
        for id in variables[list].as_array().into_iter().flatten() {
            let labels = call.repo().labels.values();
            let label = labels.into_iter().find(|label| *id == format!("LA_{}", label.id));
            let Some(name) = label.map(|label| label.name.clone()) else {
                return failure(
                    "NOT_FOUND",
                    &format!("Could not resolve to a node with the global id of {id}"),
                );
            };
            if adds {
                add_label(call.world, place, number, &actor, &name);
            } else {
                // One that the issue does not have is no error.
                remove_label(call.world, place, number, &actor, &name);
            }
        }
    }
    if let Some(body) = variables["body"].as_str() {
        call.body = json!({ "body": body });
        issues::change(call, number)?;
    }
    Reply::ok(json!({ "data": { "updateIssue": { "clientMutationId": null } } }))
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

pub(in crate::fake_github) fn error(kind: &str, message: &str) -> Value {
    json!({ "data": null, "errors": [{ "type": kind, "message": message }] })
}
