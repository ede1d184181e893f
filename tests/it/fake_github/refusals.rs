//! What the API refuses.

use serde_json::{Value, json};

use super::{Desk, TOKEN, got};
use crate::support::fake_github::Role;

#[tokio::test]
async fn wrong_tokens_and_missing_permissions_are_refused() {
    let desk = Desk::new().with_token("wrong");
    assert_eq!(desk.get("WIDGET").await.said(), "401 \"Bad credentials\" ");
    let desk = desk.with_token("");
    assert_eq!(desk.get("WIDGET").await.status, 404);
    desk.github.set_private("acme/widget", false);
    assert_eq!(desk.get("WIDGET").await.status, 200);
    let label = json!({ "name": "spec" });
    let refused = desk.send("POST", "WIDGET/labels", label.clone()).await;
    assert_eq!(refused.said(), "401 \"Requires authentication\" ");

    desk.github.set_private("acme/widget", true);
    desk.github.add_pat("reader", "bot", &["issues:read"]);
    let desk = desk.with_token("reader");
    let refused = desk.send("POST", "WIDGET/labels", label.clone()).await;
    assert_eq!(
        refused.said(),
        "403 \"Resource not accessible by personal access token\" "
    );
    assert_eq!(refused.header("x-accepted-github-permissions"), "issues=write");
    let refused = desk.get("WIDGET/pulls").await;
    assert_eq!(
        refused.header("x-accepted-github-permissions"),
        "pull_requests=read"
    );

    let desk = desk.with_token(TOKEN);
    desk.github.add_collaborator("acme/widget", "bot", Role::Read);
    assert_eq!(
        desk.send("POST", "WIDGET/labels", label.clone()).await.status,
        403
    );
    desk.github.add_collaborator("acme/widget", "bot", Role::Write);
    desk.github.set_archived("acme/widget", true);
    let refused = desk.send("POST", "WIDGET/labels", label).await;
    assert_eq!(
        refused.said(),
        "403 \"Repository was archived so is read-only.\" "
    );
}

#[tokio::test]
async fn malformed_requests_are_refused() {
    let desk = Desk::new();
    for (method, path, body, status) in [
        (
            "POST",
            "WIDGET/labels",
            json!({ "name": "a", "colour": "red" }),
            422,
        ),
        ("POST", "WIDGET/git/refs", json!({ "ref": "refs/heads/a" }), 422),
        ("GET", "WIDGET/pulls?heads=x", Value::Null, 422),
        ("GET", "/repos/acme/missing", Value::Null, 404),
        ("GET", "/search/issues?q=x", Value::Null, 404),
    ] {
        let got = desk.send(method, path, body).await;
        assert_eq!(got.status, status, "{path}: {}", got.said());
    }
    let versioned = desk
        .request("GET", "WIDGET")
        .header("X-GitHub-Api-Version", "2026-03-10");
    assert_eq!(got(versioned).await.status, 200);
    let unknown = desk
        .request("GET", "WIDGET")
        .header("X-GitHub-Api-Version", "2020-01-01");
    assert_eq!(got(unknown).await.status, 400);
    let nameless = desk.request("GET", "WIDGET").header("User-Agent", "");
    assert_eq!(got(nameless).await.status, 403);
}

#[tokio::test]
async fn pull_requests_that_cannot_be_are_refused() {
    let desk = Desk::new();
    let new = |head: &str| json!({ "title": "New", "head": head, "base": "main", "body": "Text" });
    let refused = desk.send("POST", "WIDGET/pulls", new("topic")).await;
    assert_eq!(refused.said(), "422 \"Validation Failed\" \"head\":null");
    desk.github.git("acme/widget", &["branch", "topic", "main"]);
    let refused = desk.send("POST", "WIDGET/pulls", new("topic")).await;
    assert!(
        refused.said().contains("No commits between main and topic"),
        "{}",
        refused.said()
    );
    let number = desk.open_pull("topic").await;
    let refused = desk.send("POST", "WIDGET/pulls", new("acme:topic")).await;
    assert!(
        refused
            .said()
            .contains("A pull request already exists for acme:topic."),
        "{}",
        refused.said()
    );
    let refused = desk.send("POST", "WIDGET/pulls", new("stranger:topic")).await;
    assert_eq!(refused.status, 422);

    let path = format!("WIDGET/pulls/{number}");
    let long = json!({ "body": "ä".repeat(65_536) });
    assert_eq!(desk.send("PATCH", &path, long).await.status, 200);
    let too_long = json!({ "body": "a".repeat(65_537) });
    let refused = desk.send("PATCH", &path, too_long.clone()).await;
    assert!(refused.said().contains("body is too long"), "{}", refused.said());
    let refused = desk
        .send("POST", &format!("WIDGET/issues/{number}/comments"), too_long)
        .await;
    assert_eq!(refused.status, 422);

    desk.github.forbid_pull_requests("acme/widget");
    let refused = desk.send("POST", "WIDGET/pulls", new("other")).await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn lists_have_pages_and_filters() {
    let desk = Desk::new();
    for number in 0..5 {
        desk.github
            .open_issue_as("alice", "acme/widget", &format!("Issue {number}"), "");
    }
    desk.open_pull("topic").await;
    let first = desk.get("WIDGET/issues?per_page=4&state=all").await;
    assert!(
        first.body[0]["pull_request"].is_object(),
        "a pull request is an issue too"
    );
    let link = first.header("link");
    assert!(
        link.contains("page=2>; rel=\"next\"") && link.contains("rel=\"last\""),
        "{link}"
    );
    let next = link
        .split(['<', '>'])
        .nth(1)
        .unwrap()
        .replace(desk.github.url(), "");
    let second = desk.get(&next).await;
    assert_eq!(second.body.as_array().unwrap().len(), 2);
    assert!(
        !second.header("link").contains("next"),
        "{}",
        second.header("link")
    );
    let none = desk.get("WIDGET/pulls?head=stranger:topic").await;
    assert_eq!(none.body, json!([]));
    let later = desk.get("WIDGET/issues?since=2999-01-01T00:00:00Z").await;
    assert_eq!(later.body, json!([]));
}

#[tokio::test]
async fn an_unchanged_answer_is_free() {
    let desk = Desk::new();
    let number = desk.github.open_issue_as("alice", "acme/widget", "Issue", "");
    let first = desk.get("WIDGET/issues").await;
    let tag = first.header("etag").to_owned();
    let again = || got(desk.request("GET", "WIDGET/issues").header("If-None-Match", &tag));
    let second = again().await;
    assert_eq!(second.status, 304);
    assert_eq!(
        second.header("x-ratelimit-remaining"),
        first.header("x-ratelimit-remaining")
    );
    desk.github.label_as("alice", "acme/widget", number, "spec");
    assert_eq!(again().await.status, 200);
    let counted: Vec<bool> = desk
        .github
        .requests()
        .iter()
        .map(|request| request.counted)
        .collect();
    assert_eq!(counted, [true, false, true]);
}
