//! Reviews of pull requests, comments on lines, and reviewers.

use serde_json::{Value, json};

use super::Call;
use super::shapes::association;
use crate::fake_github::reply::{Handled, Reply};
use crate::fake_github::world::user;

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    match call.operation.id {
        "pulls/list-reviews" => call.page(shown(call, "reviews")?),
        "pulls/create-review" => create_review(call),
        "pulls/list-review-comments" => call.page(shown(call, "comments")?),
        "pulls/list-comments-for-review" => list_of_review(call),
        "pulls/create-review-comment" => create_comment(call),
        "pulls/create-reply-for-review-comment" => reply(call),
        "pulls/get-review-comment" => {
            let (_, comment) = find(call)?;
            Reply::ok(comment)
        }
        "pulls/list-requested-reviewers" => {
            let users: Vec<Value> = call.pull()?.1.reviewers.iter().map(|login| user(login)).collect();
            Reply::ok(json!({ "users": users, "teams": [] }))
        }
        "pulls/request-reviewers" => request_reviewers(call),
        _ => call.not_implemented(),
    }
}

/// The reviews or comments of the pull request, with what depends on the caller's address.
fn shown(call: &Call<'_>, kind: &str) -> Result<Vec<Value>, Reply> {
    let (issue, pull) = call.pull()?;
    let list = if kind == "reviews" {
        &pull.reviews
    } else {
        &pull.review_comments
    };
    Ok(list
        .iter()
        .map(|item| with_links(call, issue.number, item))
        .collect())
}

fn with_links(call: &Call<'_>, number: u64, item: &Value) -> Value {
    let mut item = item.clone();
    let url = call.repo_url(&format!("/pulls/{number}"));
    let html_url = format!("{}/{}/pull/{number}#{}", call.url, call.repo().name, item["id"]);
    let login = item["user"]["login"].as_str().unwrap_or_default();
    item["author_association"] = json!(association(call.repo().role(login)));
    item["pull_request_url"] = json!(url);
    item["html_url"] = json!(html_url);
    if item.get("path").is_some() {
        item["url"] = json!(call.repo_url(&format!("/pulls/comments/{}", item["id"])));
    }
    item["_links"] = json!({
        "self": { "href": html_url }, "html": { "href": html_url }, "pull_request": { "href": url },
    });
    item
}

fn create_review(call: &mut Call<'_>) -> Handled {
    let number = call.pull()?.0.number;
    let state = match call.text("event") {
        "APPROVE" => "APPROVED",
        "REQUEST_CHANGES" => "CHANGES_REQUESTED",
        "COMMENT" => "COMMENTED",
        _ => "PENDING",
    };
    if call.pull()?.0.user == call.caller.login() && ["APPROVED", "CHANGES_REQUESTED"].contains(&state) {
        return Err(Reply::refuse(
            422,
            "Review Can not approve or request changes on your own pull request",
        ));
    }
    let (id, now) = (call.world.new_id(), call.world.stamp());
    let review = json!({
        "id": id, "node_id": format!("PRR_{id}"), "user": user(call.caller.login()), "body": call.text("body"),
        "state": state, "commit_id": call.pull()?.1.head_sha, "submitted_at": now,
    });
    call.pull_mut()?.reviews.push(review.clone());
    Reply::ok(with_links(call, number, &review))
}

fn list_of_review(call: &Call<'_>) -> Handled {
    let review = call.number("review_id")?;
    let comments = shown(call, "comments")?.into_iter();
    call.page(
        comments
            .filter(|comment| comment["pull_request_review_id"] == review)
            .collect(),
    )
}

fn create_comment(call: &mut Call<'_>) -> Handled {
    let fields = call.body.clone();
    let commit = fields["commit_id"].as_str().unwrap_or_default();
    if call.repo().commit_of(commit).is_none() {
        return Err(Reply::invalid(
            "PullRequestReviewComment",
            "commit_id",
            "invalid",
            "",
        ));
    }
    let mut comment = json!({ "path": fields["path"], "line": fields["line"], "commit_id": commit });
    comment["in_reply_to_id"] = fields["in_reply_to"].clone();
    add(call, comment)
}

fn reply(call: &mut Call<'_>) -> Handled {
    let (id, first) = find(call)?;
    if first["in_reply_to_id"].is_u64() {
        // Answers belong to the first comment of a thread.
        return Err(Reply::not_found());
    }
    let mut comment =
        json!({ "path": first["path"], "line": first["line"], "commit_id": first["commit_id"] });
    comment["in_reply_to_id"] = json!(id);
    add(call, comment)
}

fn add(call: &mut Call<'_>, mut comment: Value) -> Handled {
    let number = call.pull()?.0.number;
    let (id, now) = (call.world.new_id(), call.world.stamp());
    let fields = json!({
        "id": id, "node_id": format!("PRRC_{id}"), "user": user(call.caller.login()), "body": call.text("body"),
        "url": call.repo_url(&format!("/pulls/comments/{id}")), "diff_hunk": "@@",
        "original_commit_id": comment["commit_id"], "pull_request_review_id": null,
        "created_at": now, "updated_at": now,
    });
    if let (Some(comment), Value::Object(fields)) = (comment.as_object_mut(), fields) {
        comment.extend(fields);
        comment
            .retain(|name, value| !(value.is_null() && ["line", "in_reply_to_id"].contains(&name.as_str())));
    }
    call.pull_mut()?.review_comments.push(comment.clone());
    Reply::created(with_links(call, number, &comment))
}

/// The comment of the path, in any pull request of the repository.
fn find(call: &Call<'_>) -> Result<(u64, Value), Reply> {
    let id = call.number("comment_id")?;
    let found = call.repo().issues.values().find_map(|issue| {
        let comments = &issue.pull.as_ref()?.review_comments;
        let comment = comments.iter().find(|comment| comment["id"] == id)?;
        Some((id, with_links(call, issue.number, comment)))
    });
    found.ok_or_else(Reply::not_found)
}

fn request_reviewers(call: &mut Call<'_>) -> Handled {
    let logins = call.body["reviewers"].as_array().cloned().unwrap_or_default();
    let logins: Vec<String> = logins
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    for login in &logins {
        if call.repo().role(login) < crate::fake_github::world::Role::Read || *login == call.pull()?.0.user {
            let message = "Reviews may only be requested from collaborators.";
            return Err(Reply::refuse(422, message));
        }
    }
    call.pull_mut()?.reviewers.extend(logins);
    let (issue, pull) = call.pull()?;
    Reply::created(call.pull_json(issue, pull))
}
