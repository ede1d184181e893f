//! Comments below issues.

use super::Call;
use super::issues::check_body;
use crate::fake_github::reply::{Handled, Reply};
use crate::fake_github::world::{Comment, Role};

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    match call.operation.id {
        "issues/list-comments" => list(call),
        "issues/list-comments-for-repo" => list_all(call),
        "issues/create-comment" => create(call),
        "issues/get-comment" => get(call),
        "issues/update-comment" => update(call),
        "issues/delete-comment" => delete(call),
        _ => call.not_implemented(),
    }
}

fn list(call: &Call<'_>) -> Handled {
    let issue = call.issue()?;
    let since = call.asked_for("since").unwrap_or_default();
    let comments = issue
        .comments
        .iter()
        .filter(|comment| comment.updated_at.as_str() >= since);
    call.page(
        comments
            .map(|comment| call.comment_json(issue.number, comment))
            .collect(),
    )
}

fn list_all(call: &Call<'_>) -> Handled {
    let since = call.asked_for("since").unwrap_or_default();
    let comments = call.repo().issues.values().flat_map(|issue| {
        let comments = issue.comments.iter();
        comments.map(|comment| (issue.number, comment))
    });
    let recent = comments.filter(|(_, comment)| comment.updated_at.as_str() >= since);
    call.page(
        recent
            .map(|(number, comment)| call.comment_json(number, comment))
            .collect(),
    )
}

fn create(call: &mut Call<'_>) -> Handled {
    let number = call.issue()?.number;
    check_body("IssueComment", &call.body)?;
    let now = call.world.stamp();
    let comment = Comment {
        id: call.world.new_id(),
        user: call.caller.login().to_owned(),
        body: call.text("body").to_owned(),
        created_at: now.clone(),
        updated_at: now.clone(),
    };
    let issue = call.issue_mut()?;
    issue.comments.push(comment.clone());
    issue.updated_at = now;
    Reply::created(call.comment_json(number, &comment))
}

/// Where the comment is: the number of its issue, and its place there.
fn find(call: &Call<'_>) -> Result<(u64, usize), Reply> {
    let id = call.number("comment_id")?;
    let found = call.repo().issues.values().find_map(|issue| {
        let place = issue.comments.iter().position(|comment| comment.id == id)?;
        Some((issue.number, place))
    });
    found.ok_or_else(Reply::not_found)
}

fn get(call: &Call<'_>) -> Handled {
    let (number, place) = find(call)?;
    let comment = &call.repo().issues[&number].comments[place];
    Reply::ok(call.comment_json(number, comment))
}

/// Finds a comment that the caller may change: their own, or any with write access.
fn find_own(call: &Call<'_>) -> Result<(u64, usize), Reply> {
    let (number, place) = find(call)?;
    let comment = &call.repo().issues[&number].comments[place];
    let may = comment.user == call.caller.login() || call.caller.role(call.repo()) >= Role::Write;
    if may {
        Ok((number, place))
    } else {
        Err(call.forbidden())
    }
}

fn update(call: &mut Call<'_>) -> Handled {
    let (number, place) = find_own(call)?;
    check_body("IssueComment", &call.body)?;
    let (now, body) = (call.world.stamp(), call.text("body").to_owned());
    if let Some(issue) = call.repo_mut().issues.get_mut(&number) {
        issue.comments[place].body = body;
        issue.comments[place].updated_at.clone_from(&now);
        issue.updated_at = now;
    }
    get(call)
}

fn delete(call: &mut Call<'_>) -> Handled {
    let (number, place) = find_own(call)?;
    if let Some(issue) = call.repo_mut().issues.get_mut(&number) {
        issue.comments.remove(place);
    }
    Reply::no_content()
}
