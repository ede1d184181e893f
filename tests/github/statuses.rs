//! The commit status `ralph/evidence`.

use ralph::scm::{CommitState, CommitStatus, Forge, PullRequest};
use serde_json::json;

use crate::desk::{Desk, PERMISSIONS, REPO, TOKEN};
use crate::need;
use crate::runs::Site;
use crate::support::fake_github::FakeGitHub;
use crate::support::ralph::{Live, commit, doing, eventually, run, script, whole_task, write};

const WITH_STATUSES: [&str; 3] = ["contents:write", "pull_requests:write", "statuses:write"];

fn request(desk: &Desk, commit: usize, state: CommitState) -> PullRequest {
    PullRequest {
        status: Some(CommitStatus {
            state,
            description: "1 of 2 checkboxes verified".to_owned(),
        }),
        ..desk.request(commit)
    }
}

#[tokio::test]
async fn a_status_is_written_only_when_it_changed() {
    let desk = need!(Desk::validated().await);
    desk.github.add_pat(TOKEN, "ralph-bot", &WITH_STATUSES);
    let forge = desk.forge();
    let posts = || desk.count("POST /repos/acme/widget/statuses/");
    for _ in 0..2 {
        let opened = forge
            .open(&request(&desk, 0, CommitState::Pending))
            .await
            .unwrap();
        assert_eq!(opened.warnings, Vec::<String>::new());
        assert_eq!(posts(), 1);
    }
    forge
        .open(&request(&desk, 0, CommitState::Success))
        .await
        .unwrap();
    assert_eq!(posts(), 2);
    forge
        .open(&request(&desk, 1, CommitState::Success))
        .await
        .unwrap();
    assert_eq!(posts(), 3);
    let newest = desk.github.statuses(REPO).pop().unwrap();
    assert_eq!(newest["sha"], desk.commits[1].as_str());
    assert_eq!(newest["context"], "ralph/evidence");
    assert_eq!(newest["state"], "success");
    assert_eq!(newest["description"], "1 of 2 checkboxes verified");
    assert!(
        newest["target_url"].as_str().unwrap().ends_with("/pull/1"),
        "{newest}"
    );
    desk.expect_clean();
}

#[tokio::test]
async fn a_missing_permission_is_a_warning_that_names_it() {
    let desk = Desk::new().await;
    desk.github.add_pat(TOKEN, "ralph-bot", &PERMISSIONS);
    let opened = desk
        .forge()
        .open(&request(&desk, 0, CommitState::Success))
        .await
        .unwrap();
    assert!(opened.is_pull_request);
    assert!(
        opened.warnings[0].contains("the commit status") && opened.warnings[0].contains("`statuses: "),
        "{opened:?}"
    );
    desk.expect_one_pull(0);
}

/// The state of each status, oldest first.
fn states(site: &Site) -> Vec<String> {
    let statuses = site.github.statuses(REPO);
    let states = statuses.iter().filter_map(|status| status["state"].as_str());
    states.map(str::to_owned).collect()
}

fn site() -> Site {
    let site = Site::new(FakeGitHub::start());
    let permissions = [&WITH_STATUSES[..], &["checks:read", "actions:read"]].concat();
    site.github.add_pat(TOKEN, "ralph-bot", &permissions);
    site.write_configuration(
        "statuses = true\n",
        "[done]\nwait_for_ci = true\nci_settle_seconds = 1\nci_poll_seconds = 1\n",
    );
    site.set_task("pr:\n  when: first-push\n");
    site
}

/// Pending while the run works, successful in the end. Ralph's own status is no check of CI that it waits for.
#[test]
fn a_run_shows_its_evidence_on_its_commits() {
    let site = site();
    let half = doing([write("a.txt", "hello\n"), commit("Half of it")]);
    let pause = doing([json!({"type": "pause", "reason": "look"})]);
    site.run(&script([half, pause, whole_task()]))
        .expect(3, &["paused"]);
    assert_eq!(states(&site), ["pending", "error"]);
    let text = site.github.statuses(REPO)[0]["description"].clone();
    assert!(text.as_str().unwrap().starts_with("in progress, "), "{text}");
    let text = site.github.statuses(REPO)[1]["description"].clone();
    assert_eq!(text, "paused: the agent asks for a person: look");
    site.ralph(&["resume"])
        .expect(0, &["CI has no check of it after 1 s"]);
    assert_eq!(states(&site), ["pending", "error", "success"]);
    let done = site.github.statuses(REPO).remove(2);
    assert_eq!(done["description"], "2 of 2 checkboxes verified");
    assert_eq!(done["sha"], site.github.pulls(REPO)[0].head_sha);
}

#[test]
fn tests_that_fail_are_a_failure() {
    let site = site();
    let broken = doing([write("broken", "x\n"), commit("Broken")]);
    let pause = doing([json!({"type": "pause", "reason": "look"})]);
    site.run(&script([broken, pause])).expect(3, &["paused"]);
    assert_eq!(states(&site), ["failure"]);
}

/// A run that ends without being done leaves no status that waits, and says why within GitHub's limit.
#[test]
fn a_run_that_failed_ends_its_status() {
    let site = site();
    let half = doing([write("a.txt", "hello\n"), commit("Half of it")]);
    let gives_up = doing([json!({"type": "stop_failure", "reason": "it is hard, ".repeat(20)})]);
    site.run(&script([half, gives_up])).expect(1, &["gave up"]);
    assert_eq!(states(&site), ["pending", "failure"]);
    let newest = site.github.statuses(REPO).remove(1);
    let text = newest["description"].as_str().unwrap();
    assert!(
        text.starts_with("failed: the agent gave up: it is hard, ") && text.ends_with("..."),
        "{text}"
    );
    assert_eq!(text.chars().count(), 140);
    assert_eq!(newest["sha"], site.github.pulls(REPO)[0].head_sha);
}

#[test]
fn a_run_that_a_person_stopped_ends_its_status() {
    let site = site();
    let half = doing([write("a.txt", "hello\n"), commit("Half of it")]);
    let live = Live::start(&mut site.scripted(&script([half, doing([run("sleep 600")])])));
    eventually("the first commit has a status", || states(&site) == ["pending"]);
    site.ralph(&["stop"]).expect(0, &[]);
    live.wait().expect(3, &["stopped by a person"]);
    assert_eq!(states(&site), ["pending", "error"]);
    let text = site.github.statuses(REPO)[1]["description"].clone();
    assert_eq!(text, "stopped: stopped by a person");
}

/// The evidence of the commit stays true if a person stops the run while CI works.
#[test]
fn a_status_that_is_decided_stays() {
    let site = site();
    site.write_configuration(
        "statuses = true\n",
        "[done]\nwait_for_ci = true\nci_settle_seconds = 600\nci_poll_seconds = 1\n",
    );
    let live = Live::start(&mut site.scripted(&script([whole_task()])));
    eventually("the evidence is shown", || states(&site) == ["success"]);
    site.ralph(&["stop"]).expect(0, &[]);
    live.wait().expect(3, &["stopped by a person"]);
    assert_eq!(states(&site), ["success"]);
}
