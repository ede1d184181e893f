//! What people do meanwhile, and what a test sees of a client.

use serde_json::json;

use super::{Desk, TOKEN};
use crate::support::fake_github::{JobLog, Role};

#[tokio::test]
async fn people_push_label_and_merge() {
    let desk = Desk::new();
    let number = desk.open_pull("topic").await;
    let commit = desk.github.push_as("alice", "acme/widget", "topic", "b.txt", "b");
    let path = format!("WIDGET/pulls/{number}");
    let shown = desk.read(&path).await;
    assert_eq!(
        (&shown["head"]["sha"], &shown["commits"]),
        (&json!(commit), &json!(2))
    );
    let commits = desk.read(&format!("{path}/commits")).await;
    assert_eq!(commits[1]["commit"]["author"]["name"], "alice");

    desk.github.label_as("mallory", "acme/widget", number, "spec");
    desk.github.unlabel_as("mallory", "acme/widget", number, "SPEC");
    assert!(desk.github.labels("acme/widget", number).is_empty());
    let events = desk.get(&format!("WIDGET/issues/{number}/events")).await;
    assert_eq!(events.body[1]["actor"]["login"], "mallory");
    let level = desk.get("WIDGET/collaborators/mallory/permission").await;
    assert_eq!(level.body["permission"], "none");
    desk.github.add_collaborator("acme/widget", "alice", Role::Admin);
    let level = desk.get("WIDGET/collaborators/alice/permission").await;
    assert_eq!(level.body["permission"], "admin");

    desk.github
        .comment_as("mallory", "acme/widget", number, "Do this");
    let comments = desk.get(&format!("WIDGET/issues/{number}/comments")).await;
    assert_eq!(comments.body[0]["author_association"], "NONE");
    desk.github
        .edit_issue_as("mallory", "acme/widget", number, "Other");
    assert_eq!(desk.github.body("acme/widget", number), "Other");
    desk.github.close_as("alice", "acme/widget", number);
    assert!(!desk.github.is_open("acme/widget", number));
    desk.github.reopen_as("alice", "acme/widget", number);
    desk.github.merge_as("alice", "acme/widget", number);
    let merged = desk.read(&path).await;
    assert_eq!(
        (&merged["merged"], &merged["state"]),
        (&json!(true), &json!("closed"))
    );
    assert!(desk.github.pulls("acme/widget")[0].merged);
}

#[tokio::test]
async fn logs_are_missing_while_a_job_runs_and_gone_later() {
    let desk = Desk::new();
    let sha = desk.github.refs("acme/widget")["refs/heads/main"].clone();
    let run = desk.github.add_workflow_run("acme/widget", &sha, "main", None);
    let job = desk
        .github
        .add_job("acme/widget", run, "test", None, JobLog::NotWritten);
    let path = format!("WIDGET/actions/jobs/{job}/logs");
    let location = desk.get(&path).await.header("location").to_owned();
    let missing = desk.client.get(&location).send().await.unwrap();
    assert_eq!(missing.status(), 404);
    assert!(missing.text().await.unwrap().contains("BlobNotFound"));
    desk.github
        .set_job_log("acme/widget", job, JobLog::Text("done".to_owned()));
    let log = desk.client.get(&location).send().await.unwrap();
    assert_eq!(log.text().await.unwrap(), "done");
    desk.github.set_job_log("acme/widget", job, JobLog::Expired);
    assert_eq!(desk.get(&path).await.status, 410);
}

#[tokio::test]
async fn a_canary_is_found_outside_of_its_header() {
    let desk = Desk::new();
    desk.get("WIDGET").await;
    assert!(desk.github.forbid_canary(TOKEN).is_empty());
    desk.send("POST", "WIDGET/labels", json!({ "name": TOKEN })).await;
    desk.get(&format!("WIDGET/labels/{TOKEN}")).await;
    let request = desk.request("GET", "WIDGET").header("X-Extra", TOKEN);
    request.send().await.unwrap();
    let found = desk.github.forbid_canary(TOKEN);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[0], "POST /repos/acme/widget/labels");
    assert_eq!(desk.github.calls().len(), 4);
    assert!(
        desk.github
            .requests()
            .iter()
            .all(|request| request.identity == "bot")
    );
}
