//! Git over HTTP, and pushes that are refused.

use serde_json::{Value, json};

use super::{Desk, TOKEN};
use crate::support::fake_github::{Protection, Role};

#[tokio::test]
async fn a_push_needs_the_token_and_shows_in_the_api() {
    let desk = Desk::new();
    desk.clone_and_commit("topic", "a.txt");
    let (pushed, said) = desk.git(&["push", "origin", "topic"]);
    assert!(pushed, "{said}");
    let refs = desk.github.refs("acme/widget");
    let branch = desk.read("WIDGET/branches/topic").await;
    assert_eq!(branch["commit"]["sha"], refs["refs/heads/topic"]);
    let claim = desk.git(&["push", "origin", "topic:refs/ralph/claims/1"]);
    assert!(claim.0, "{}", claim.1);

    let stranger = desk.with_token("github_pat_UNKNOWN");
    let (pushed, said) = stranger.git(&["push", "origin", "topic:other"]);
    assert!(!pushed && said.contains("could not read Username"), "{said}");
    let stranger = stranger.with_token(TOKEN);
    stranger.github.add_pat(TOKEN, "bot", &["contents:read"]);
    let (pushed, said) = stranger.git(&["push", "origin", "topic:other"]);
    assert!(
        !pushed && said.contains("Permission to acme/widget.git denied to bot."),
        "{said}"
    );
}

#[tokio::test]
async fn private_and_archived_repositories_are_closed() {
    let desk = Desk::new();
    let url = desk.github.git_url("acme/widget");
    desk.clone_and_commit("topic", "a.txt");
    desk.github.add_collaborator("acme/widget", "bot", Role::None);
    let (read, said) = desk.git(&["ls-remote", &url]);
    assert!(!read && said.contains("not found"), "{said}");
    desk.github.set_private("acme/widget", false);
    assert!(desk.git(&["ls-remote", &url]).0);
    desk.github.add_collaborator("acme/widget", "bot", Role::Write);
    desk.github.set_archived("acme/widget", true);
    let (pushed, said) = desk.git(&["push", "origin", "topic"]);
    assert!(!pushed && said.contains("archived so it is read-only"), "{said}");
}

#[tokio::test]
async fn a_push_with_a_workflow_is_refused_whole_without_the_permission() {
    let desk = Desk::new();
    desk.github.add_pat(TOKEN, "bot", &["contents:write"]);
    desk.clone_and_commit("plain", "a.txt");
    desk.clone_and_commit("flow", ".github/workflows/ci.yml");
    let (pushed, said) = desk.git(&["push", "origin", "plain", "flow"]);
    let reason =
        "refusing to allow a Personal Access Token to create or update workflow `.github/workflows/ci.yml`";
    assert!(!pushed && said.contains(reason), "{said}");
    let refs: Vec<String> = desk.github.refs("acme/widget").into_keys().collect();
    assert_eq!(refs, ["refs/heads/main"]);
    desk.github
        .add_pat(TOKEN, "bot", &["contents:write", "workflows:write"]);
    let (pushed, said) = desk.git(&["push", "origin", "plain", "flow"]);
    assert!(pushed, "{said}");
}

#[tokio::test]
async fn protected_branches_refuse_pushes() {
    let desk = Desk::new();
    desk.clone_and_commit("topic", "a.txt");
    desk.github
        .protect("acme/widget", "main", Protection::PullRequestOnly);
    let (pushed, said) = desk.git(&["push", "origin", "topic:main"]);
    assert!(
        !pushed && said.contains("GH006: Protected branch update failed for refs/heads/main"),
        "{said}"
    );

    desk.github
        .protect("acme/widget", "topic", Protection::NoForcePush);
    assert!(desk.git(&["push", "origin", "topic"]).0);
    desk.clone_and_commit("topic", "b.txt");
    assert!(desk.git(&["push", "origin", "topic"]).0);
    for refused in [
        ["push", "--force", "origin", "topic~1:topic"],
        ["push", "--delete", "origin", "topic"],
    ] {
        let (pushed, said) = desk.git(&refused);
        assert!(
            !pushed && said.contains("Cannot force-push to this branch"),
            "{said}"
        );
    }
    let main = desk.github.refs("acme/widget")["refs/heads/main"].clone();
    let forced = json!({ "sha": main, "force": true });
    let got = desk.send("PATCH", "WIDGET/git/refs/heads/topic", forced).await;
    assert_eq!(got.said(), "422 \"Cannot force-push to this branch\" ");
}

#[tokio::test]
async fn a_renamed_repository_redirects_git_and_the_api() {
    let desk = Desk::new();
    desk.clone_and_commit("topic", "a.txt");
    desk.github.rename_repo("acme/widget", "acme/gadget");
    let (pushed, said) = desk.git(&["push", "origin", "topic"]);
    assert!(pushed, "{said}");
    let got = desk.get("WIDGET/branches/topic").await;
    assert_eq!(got.status, 301);
    let location = got.header("location").replace(desk.github.url(), "");
    assert_eq!(desk.read(&location).await["name"], "topic");
    let pull = json!({ "title": "New", "head": "topic", "base": "main" });
    let got = desk.send("POST", "WIDGET/pulls", pull.clone()).await;
    assert_eq!(got.status, 307);
    let location = got.header("location").replace(desk.github.url(), "");
    desk.expect(201, "POST", &location, pull).await;
}

#[tokio::test]
async fn a_fast_forward_is_won_by_one_of_two() {
    let desk = Desk::new();
    let main = desk.github.refs("acme/widget")["refs/heads/main"].clone();
    let create = || {
        desk.send(
            "POST",
            "WIDGET/git/refs",
            json!({ "ref": "refs/ralph/claims/1", "sha": main }),
        )
    };
    let (first, second) = tokio::join!(create(), create());
    assert_eq!(sorted([first.status, second.status]), [201, 422]);
    let tree = desk
        .expect(200, "GET", &format!("WIDGET/git/commits/{main}"), Value::Null)
        .await;
    let tree = &tree["tree"]["sha"];
    let renew = async |owner: &str| {
        let commit = json!({ "message": owner, "tree": tree, "parents": [main] });
        let commit = desk.expect(201, "POST", "WIDGET/git/commits", commit).await;
        let renewed = json!({ "sha": commit["sha"], "force": false });
        desk.send("PATCH", "WIDGET/git/refs/ralph/claims/1", renewed)
            .await
    };
    let (first, second) = tokio::join!(renew("one"), renew("two"));
    assert_eq!(sorted([first.status, second.status]), [200, 422]);
}

fn sorted(mut statuses: [u16; 2]) -> [u16; 2] {
    statuses.sort_unstable();
    statuses
}

#[tokio::test]
async fn deleting_a_base_branch_closes_the_pull_request_above_it() {
    let desk = Desk::new();
    desk.github
        .push_as("bot", "acme/widget", "lower", "lower.txt", "x");
    let lower = desk.github.refs("acme/widget")["refs/heads/lower"].clone();
    desk.github.git("acme/widget", &["branch", "upper", "lower"]);
    desk.github
        .push_as("bot", "acme/widget", "upper", "upper.txt", "x");
    let pull = json!({ "title": "Upper", "head": "upper", "base": "lower" });
    let number = desk.expect(201, "POST", "WIDGET/pulls", pull).await["number"].clone();
    let path = format!("WIDGET/pulls/{number}");
    desk.expect(204, "DELETE", "WIDGET/git/refs/heads/lower", Value::Null)
        .await;
    assert_eq!(desk.read(&path).await["state"], "closed");
    let open = json!({ "state": "open" });
    let got = desk.send("PATCH", &path, open.clone()).await;
    assert!(
        got.status == 422 && got.said().contains("lower branch was deleted"),
        "{}",
        got.said()
    );
    let branch = json!({ "ref": "refs/heads/lower", "sha": lower });
    desk.expect(201, "POST", "WIDGET/git/refs", branch).await;
    let opened = desk.expect(200, "PATCH", &path, open).await;
    assert_eq!(opened["state"], "open");
    let retargeted = desk.expect(200, "PATCH", &path, json!({ "base": "main" })).await;
    assert_eq!(
        (&retargeted["base"]["ref"], &retargeted["commits"]),
        (&json!("main"), &json!(2))
    );
}
