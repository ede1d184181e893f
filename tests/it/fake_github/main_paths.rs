//! The usual calls, through Prism: requests and answers are as GitHub's document says.

use serde_json::{Value, json};

use super::{Desk, TOKEN};
use crate::need;
use crate::support::fake_github::{JobLog, Protection};

/// Fails when Prism found something.
fn assert_valid(desk: &Desk) {
    let violations = desk.github.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[tokio::test]
async fn repositories_branches_and_refs_are_as_documented() {
    let desk = need!(Desk::validated());
    let repo = desk.read("WIDGET").await;
    assert_eq!(repo["full_name"], "acme/widget");
    assert_eq!(repo["permissions"]["push"], true);
    let user = desk.read("/user").await;
    assert_eq!(user["login"], "bot");
    desk.read("/rate_limit").await;
    let branch = desk.read("WIDGET/branches/main").await;
    let main = branch["commit"]["sha"].as_str().unwrap().to_owned();

    desk.github
        .protect("acme/widget", "main", Protection::PullRequestOnly);
    let rules = desk.read("WIDGET/rules/branches/main").await;
    assert_eq!(rules[0]["type"], "pull_request");
    let rules = desk.read("WIDGET/rules/branches/other").await;
    assert_eq!(rules, json!([]));
    let level = desk.read("WIDGET/collaborators/bot/permission").await;
    assert_eq!(level["permission"], "write");

    let tree = json!({ "tree": [{ "path": "a/b", "mode": "100644", "type": "blob", "content": "x" }] });
    let tree = desk.expect(201, "POST", "WIDGET/git/trees", tree).await;
    let commit = json!({ "message": "{\"epoch\":1}", "tree": tree["sha"], "parents": [main] });
    let commit = desk.expect(201, "POST", "WIDGET/git/commits", commit).await;
    let path = format!("WIDGET/git/commits/{}", commit["sha"].as_str().unwrap());
    let read = desk.read(&path).await;
    assert_eq!(read["message"], "{\"epoch\":1}");
    assert_eq!(read["parents"][0]["sha"], main);

    let claim = json!({ "ref": "refs/ralph/claims/7", "sha": main });
    desk.expect(201, "POST", "WIDGET/git/refs", claim.clone()).await;
    desk.expect(422, "POST", "WIDGET/git/refs", claim).await;
    let new = json!({ "sha": commit["sha"], "force": false });
    desk.expect(200, "PATCH", "WIDGET/git/refs/ralph%2Fclaims%2F7", new)
        .await;
    let old = json!({ "sha": main, "force": false });
    desk.expect(422, "PATCH", "WIDGET/git/refs/ralph%2Fclaims%2F7", old)
        .await;
    let read = desk.read("WIDGET/git/ref/ralph%2Fclaims%2F7").await;
    assert_eq!(read["object"]["sha"], commit["sha"]);
    let all = desk.read("WIDGET/git/matching-refs/ralph%2Fclaims%2F").await;
    assert_eq!(all.as_array().unwrap().len(), 1);
    desk.expect(204, "DELETE", "WIDGET/git/refs/ralph%2Fclaims%2F7", Value::Null)
        .await;
    desk.expect(404, "GET", "WIDGET/git/ref/ralph%2Fclaims%2F7", Value::Null)
        .await;
    assert_valid(&desk);
}

#[tokio::test]
async fn pull_requests_are_as_documented() {
    let desk = need!(Desk::validated());
    let number = desk.open_pull("topic").await;
    let path = format!("WIDGET/pulls/{number}");
    let listed = desk.read("WIDGET/pulls?head=acme%3Atopic&state=open").await;
    assert_eq!(listed[0]["number"], number);
    assert_eq!(
        listed[0]["head"]["sha"],
        desk.github.refs("acme/widget")["refs/heads/topic"]
    );
    let pull = desk.read(&path).await;
    assert_eq!(
        (&pull["draft"], &pull["mergeable"], &pull["commits"]),
        (&json!(true), &json!(true), &json!(1))
    );
    let mutation = "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { isDraft } } }";
    let query = json!({ "query": mutation, "variables": { "id": pull["node_id"] } });
    let ready = desk.expect(200, "POST", "/graphql", query).await;
    assert_eq!(
        ready,
        json!({ "data": { "markPullRequestReadyForReview": { "pullRequest": { "isDraft": false } } } })
    );
    let other = desk
        .expect(
            200,
            "POST",
            "/graphql",
            json!({ "query": "{ viewer { login } }" }),
        )
        .await;
    assert!(other["errors"][0]["message"].is_string(), "{other}");

    let change = json!({ "title": "Better", "body": "More" });
    let changed = desk.expect(200, "PATCH", &path, change).await;
    assert_eq!(
        (&changed["title"], &changed["draft"]),
        (&json!("Better"), &json!(false))
    );
    let files = desk.read(&format!("{path}/files")).await;
    assert_eq!(
        (&files[0]["filename"], &files[0]["status"]),
        (&json!("new.txt"), &json!("added"))
    );
    let commits = desk.read(&format!("{path}/commits")).await;
    assert_eq!(commits[0]["sha"], pull["head"]["sha"]);

    reviews_are_as_documented(&desk, number).await;
    desk.expect(404, "GET", "WIDGET/stacks", Value::Null).await;
    desk.expect(200, "PATCH", &path, json!({ "state": "closed" }))
        .await;
    assert_valid(&desk);
}

#[tokio::test]
async fn issues_and_labels_are_as_documented() {
    let desk = need!(Desk::validated());
    let first = desk.github.open_issue_as("alice", "acme/widget", "First", "Body");
    let second = desk
        .github
        .open_issue_as("alice", "acme/widget", "Second", "Body");
    desk.github.block("acme/widget", second, first);
    desk.github.label_as("alice", "acme/widget", second, "Spec");
    let path = format!("WIDGET/issues/{second}");
    let listed = desk.read("WIDGET/issues?labels=spec&per_page=100").await;
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let waits = desk.read(&format!("{path}/dependencies/blocked_by")).await;
    assert_eq!(waits[0]["number"], first);
    let label = json!({ "name": "status:ready", "color": "00ff00", "description": "Can be taken" });
    desk.expect(201, "POST", "WIDGET/labels", label).await;
    let labels = json!({ "labels": ["STATUS:ready"] });
    let labels = desk.expect(200, "POST", &format!("{path}/labels"), labels).await;
    assert_eq!(labels[1]["name"], "status:ready");
    desk.expect(200, "DELETE", &format!("{path}/labels/spec"), Value::Null)
        .await;
    desk.expect(404, "DELETE", &format!("{path}/labels/spec"), Value::Null)
        .await;
    desk.read("WIDGET/labels").await;
    let comment = json!({ "body": "Taken" });
    let comment = desk
        .expect(201, "POST", &format!("{path}/comments"), comment)
        .await;
    let one = format!("WIDGET/issues/comments/{}", comment["id"]);
    desk.expect(200, "PATCH", &one, json!({ "body": "Done" })).await;
    let comments = desk.read(&format!("{path}/comments")).await;
    assert_eq!(comments[0]["body"], "Done");
    for list in ["events", "timeline"] {
        let events = desk.read(&format!("{path}/{list}")).await;
        let said = (
            &events[0]["event"],
            &events[0]["actor"]["login"],
            &events[0]["label"]["name"],
        );
        assert_eq!(said, (&json!("labeled"), &json!("alice"), &json!("Spec")));
    }
    desk.expect(204, "DELETE", &one, Value::Null).await;
    let change = json!({ "title": "Third", "state": "closed", "body": null });
    desk.expect(200, "PATCH", &path, change).await;
    let events = desk.read(&format!("{path}/timeline")).await;
    let events: Vec<_> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event"].clone())
        .collect();
    assert_eq!(
        json!(events),
        json!(["labeled", "labeled", "unlabeled", "renamed", "closed"])
    );
    let new = json!({ "title": "New", "body": "Text", "labels": ["spec"] });
    desk.expect(201, "POST", "WIDGET/issues", new).await;
    assert_valid(&desk);
}

#[tokio::test]
async fn checks_statuses_and_logs_are_as_documented() {
    let desk = need!(Desk::validated());
    let sha = desk.github.push_as("bot", "acme/widget", "topic", "a", "b");
    let status = desk.read(&format!("WIDGET/commits/{sha}/status")).await;
    assert_eq!(
        (&status["state"], &status["total_count"]),
        (&json!("pending"), &json!(0))
    );
    let new = json!({ "state": "success", "context": "lint" });
    desk.expect(201, "POST", &format!("WIDGET/statuses/{sha}"), new)
        .await;
    let status = desk.read(&format!("WIDGET/commits/{sha}/status")).await;
    assert_eq!(status["state"], "success");
    desk.read(&format!("WIDGET/commits/{sha}/statuses")).await;
    desk.github
        .set_check_run("acme/widget", &sha, "test", "completed", Some("failure"));
    desk.github
        .set_check_run("acme/widget", &sha, "test", "in_progress", None);
    let runs = desk.read(&format!("WIDGET/commits/{sha}/check-runs")).await;
    assert_eq!(
        (&runs["total_count"], &runs["check_runs"][0]["status"]),
        (&json!(1), &json!("in_progress"))
    );

    logs_are_as_documented(&desk, &sha).await;
    assert_valid(&desk);
}

/// A review with a comment on a line, and the answer to it.
async fn reviews_are_as_documented(desk: &Desk, number: u64) {
    let path = format!("WIDGET/pulls/{number}");
    let review = desk
        .github
        .review_as("alice", "acme/widget", number, "CHANGES_REQUESTED", "No.");
    let comment = desk
        .github
        .review_comment_as("alice", "acme/widget", review, "new.txt", 1, "Why?");
    let reviews = desk.read(&format!("{path}/reviews")).await;
    assert_eq!(reviews[0]["state"], "CHANGES_REQUESTED");
    let answer = json!({ "body": "Because." });
    desk.expect(201, "POST", &format!("{path}/comments/{comment}/replies"), answer)
        .await;
    let comments = desk.read(&format!("{path}/comments")).await;
    assert_eq!(comments[1]["in_reply_to_id"], comment);
    let of_review = format!("{path}/reviews/{review}/comments");
    let of_review = desk.read(&of_review).await;
    assert_eq!(of_review.as_array().unwrap().len(), 1);
}

/// A run, its job, and the log, which is on another host.
async fn logs_are_as_documented(desk: &Desk, sha: &str) {
    let run = desk
        .github
        .add_workflow_run("acme/widget", sha, "topic", Some("failure"));
    let text = JobLog::Text("##[error]no".to_owned());
    let job = desk
        .github
        .add_job("acme/widget", run, "test", Some("failure"), text);
    let runs = desk.read(&format!("WIDGET/actions/runs?head_sha={sha}")).await;
    assert_eq!(runs["workflow_runs"][0]["id"], run);
    let jobs = desk.read(&format!("WIDGET/actions/runs/{run}/jobs")).await;
    assert_eq!(jobs["jobs"][0]["id"], job);
    let logs = desk.get(&format!("WIDGET/actions/jobs/{job}/logs")).await;
    assert_eq!(logs.status, 302);
    let location = logs.header("location");
    assert!(!location.starts_with(desk.github.url()), "{location}");
    let log = desk.client.get(location).send().await.unwrap();
    assert_eq!(log.text().await.unwrap(), "##[error]no");
    let refused = desk.client.get(location).bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(refused.status(), 401);
}
