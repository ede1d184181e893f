//! Injected faults, lag and rate limits.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use super::Desk;
use crate::need;
use crate::support::fake_github::{Fault, Lag, LimitSettings};

#[tokio::test]
async fn a_lost_answer_leaves_what_was_done() {
    let desk = need!(Desk::validated());
    desk.github.push_as("bot", "acme/widget", "topic", "a", "b");
    let pull = json!({ "title": "New", "head": "topic", "base": "main" });
    let create = || desk.request("POST", "WIDGET/pulls").json(&pull).send();
    desk.github
        .fail_next("POST", "/repos/acme/widget/pulls", Fault::DroppedBefore);
    assert!(create().await.is_err());
    assert_eq!(desk.github.pulls("acme/widget").len(), 0);
    desk.github
        .fail_next("POST", "/repos/acme/widget/pulls", Fault::DroppedAfter);
    assert!(create().await.is_err());
    assert_eq!(desk.github.pulls("acme/widget").len(), 1);
    assert_eq!(create().await.unwrap().status(), 422);
    for status in [500, 502] {
        desk.github
            .fail_next("GET", "/repos/acme/widget", Fault::Status(status));
        assert_eq!(desk.get("WIDGET").await.status, status);
    }
    desk.github.fail_next(
        "POST",
        "/repos/acme/widget/labels",
        Fault::ExecutedThenStatus(502),
    );
    let label = json!({ "name": "spec" });
    assert_eq!(
        desk.send("POST", "WIDGET/labels", label.clone()).await.status,
        502
    );
    assert_eq!(desk.send("POST", "WIDGET/labels", label).await.status, 422);
    assert_eq!(desk.github.faults_left(), 0);
    let statuses: Vec<u16> = desk
        .github
        .requests()
        .iter()
        .map(|request| request.status)
        .collect();
    assert_eq!(statuses, [0, 0, 422, 500, 502, 502, 422]);
    assert!(
        desk.github.violations().is_empty(),
        "{:?}",
        desk.github.violations()
    );
}

#[tokio::test]
async fn the_answer_to_a_push_can_be_lost() {
    let desk = Desk::new();
    desk.clone_and_commit("topic", "a.txt");
    let path = "/acme/widget.git/git-receive-pack";
    desk.github.fail_next("POST", path, Fault::DroppedBefore);
    assert!(!desk.git(&["push", "origin", "topic"]).0);
    assert!(!desk.github.refs("acme/widget").contains_key("refs/heads/topic"));
    desk.github.fail_next("POST", path, Fault::DroppedAfter);
    assert!(!desk.git(&["push", "origin", "topic"]).0);
    assert!(desk.github.refs("acme/widget").contains_key("refs/heads/topic"));
}

#[tokio::test]
async fn a_push_is_seen_late() {
    let desk = Desk::new();
    desk.clone_and_commit("topic", "a.txt");
    desk.github.lag_pushes(Some(Lag::Requests(2)));
    assert!(desk.git(&["push", "origin", "topic"]).0);
    assert!(
        desk.git(&["ls-remote", "--exit-code", "origin", "topic"]).0,
        "git sees it at once"
    );
    let pull = json!({ "title": "New", "head": "topic", "base": "main" });
    assert_eq!(desk.get("WIDGET/branches/topic").await.status, 404);
    let refused = desk.send("POST", "WIDGET/pulls", pull.clone()).await;
    assert_eq!(refused.said(), "422 \"Validation Failed\" \"head\":null");
    let number = desk.expect(201, "POST", "WIDGET/pulls", pull).await["number"].clone();
    let old = desk.github.refs("acme/widget")["refs/heads/topic"].clone();

    desk.github
        .lag_pushes(Some(Lag::Time(Duration::from_millis(1500))));
    desk.clone_and_commit("topic", "b.txt");
    assert!(desk.git(&["push", "origin", "topic"]).0);
    let path = format!("WIDGET/pulls/{number}");
    let shown = desk.read(&path).await;
    assert_eq!(shown["head"]["sha"], old);
    tokio::time::sleep(Duration::from_millis(1600)).await;
    let shown = desk.read(&path).await;
    assert_eq!(
        shown["head"]["sha"],
        desk.github.refs("acme/widget")["refs/heads/topic"]
    );
}

#[tokio::test]
async fn a_new_pull_request_is_listed_late() {
    let desk = Desk::new();
    desk.github.lag_new_pulls(Some(Lag::Requests(1)));
    let number = desk.open_pull("topic").await;
    let list = "WIDGET/pulls?head=acme:topic&state=open";
    assert_eq!(desk.get(list).await.body, json!([]));
    assert_eq!(desk.get(&format!("WIDGET/pulls/{number}")).await.status, 200);
    assert_eq!(desk.get(list).await.body[0]["number"], number);
}

#[rstest]
#[case(403, false)]
#[case(429, true)]
#[tokio::test]
async fn too_many_writes_meet_the_secondary_limit(#[case] status: u16, #[case] retry_after: bool) {
    let desk = Desk::new();
    desk.github.set_limits(LimitSettings {
        writes_a_minute: 3,
        minute: Duration::from_secs(2),
        status,
        retry_after,
        ..LimitSettings::default()
    });
    let label = |number: u8| json!({ "name": format!("label {number}") });
    for number in 0..3 {
        desk.expect(201, "POST", "WIDGET/labels", label(number)).await;
    }
    let refused = desk.send("POST", "WIDGET/labels", label(4)).await;
    assert_eq!(refused.status, status);
    assert!(
        refused
            .said()
            .contains("You have exceeded a secondary rate limit"),
        "{}",
        refused.said()
    );
    assert_eq!(refused.header("retry-after"), if retry_after { "2" } else { "" });
    assert_ne!(refused.header("x-ratelimit-remaining"), "0");
    assert_eq!(
        desk.get("WIDGET").await.status,
        status,
        "the identity waits, not the operation"
    );
    tokio::time::sleep(Duration::from_millis(2100)).await;
    desk.expect(201, "POST", "WIDGET/labels", label(4)).await;
    let early = desk
        .github
        .requests()
        .iter()
        .filter(|request| request.while_limited)
        .count();
    assert_eq!(early, 1);
}

#[tokio::test]
async fn parallel_writes_and_an_hour_of_writes_meet_the_secondary_limit() {
    let desk = Desk::new();
    let limits = LimitSettings {
        parallel_writes: 1,
        write_takes: Duration::from_millis(300),
        minute: Duration::from_millis(100),
        ..LimitSettings::default()
    };
    desk.github.set_limits(limits.clone());
    let label = |name: &str| desk.send("POST", "WIDGET/labels", json!({ "name": name }));
    let (first, second) = tokio::join!(label("a"), label("b"));
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 403]);
    tokio::time::sleep(Duration::from_millis(150)).await;
    desk.github.set_limits(LimitSettings {
        writes_an_hour: 2,
        ..limits
    });
    assert_eq!(label("c").await.status, 201);
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(label("d").await.status, 403);
}

#[tokio::test]
async fn pushes_count_as_writes() {
    let desk = Desk::new();
    desk.clone_and_commit("topic", "a.txt");
    desk.github.set_limits(LimitSettings {
        writes_a_minute: 1,
        ..LimitSettings::default()
    });
    assert!(desk.git(&["push", "origin", "topic"]).0);
    let (pushed, said) = desk.git(&["push", "origin", "topic:other"]);
    assert!(!pushed && said.contains("403"), "{said}");
}

#[tokio::test]
async fn the_primary_limit_is_counted_and_enforced() {
    let desk = Desk::new();
    desk.github.set_limits(LimitSettings {
        primary: 2,
        ..LimitSettings::default()
    });
    assert_eq!(desk.get("WIDGET").await.header("x-ratelimit-remaining"), "1");
    assert_eq!(desk.get("WIDGET").await.header("x-ratelimit-remaining"), "0");
    let refused = desk.get("WIDGET").await;
    assert!(
        refused.said().starts_with("403 \"API rate limit exceeded"),
        "{}",
        refused.said()
    );
    assert_eq!(refused.header("x-ratelimit-remaining"), "0");
    assert!(refused.header("x-ratelimit-reset").parse::<i64>().is_ok());
    desk.github.add_pat("other", "alice", &["issues:read"]);
    desk.github.set_private("acme/widget", false);
    let other = desk.with_token("other");
    assert_eq!(
        other.get("WIDGET").await.status,
        200,
        "another identity has its own limit"
    );
}
