//! Stacked pull requests: opened into the branch below, and moved to its base before that branch goes.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use ralph::github::{Claims, GitHubForge, StackChange};
use ralph::id::RunId;
use ralph::scm::{Forge, ForgeError, PlannedPullRequest, PullRequest};
use serde_json::json;

use crate::desk::{BRANCH, Desk, REPO, git};
use crate::need;
use crate::runs::Site;
use crate::support::fake_github::{FakeGitHub, Fault};
use crate::support::ralph::{commit, doing, ending, script, whole_task, write};

const CHILD: &str = "ralph/t2/say-more";

/// The pull request of another run, on top of [`Desk::request`].
fn child(desk: &Desk, commit: usize) -> PullRequest {
    PullRequest {
        run: RunId::parse("r34567892").unwrap(),
        branch: CHILD.to_owned(),
        base_branch: BRANCH.to_owned(),
        title: "t2: Say more".to_owned(),
        ..desk.request(commit)
    }
}

/// Two pull requests on top of each other.
async fn stacked() -> Desk {
    let desk = Desk::new().await;
    desk.forge().open(&desk.request(0)).await.unwrap();
    desk.forge().open(&child(&desk, 1)).await.unwrap();
    desk
}

/// The claims of a poller.
fn claims(desk: &Desk) -> Claims {
    Claims::new(Arc::new(desk.forge()), "poller", SignedDuration::from_mins(15))
}

async fn retarget(desk: &Desk, forge: &GitHubForge) -> Vec<StackChange> {
    let changes = forge.retarget_stacked(&claims(desk)).await.unwrap();
    let refs = desk.github.refs(REPO);
    assert!(!refs.keys().any(|name| name.contains("claims")), "{refs:?}");
    changes
}

fn base_of(desk: &Desk, number: u64) -> String {
    let pulls = desk.github.pulls(REPO);
    pulls.into_iter().find(|pull| pull.number == number).unwrap().base
}

/// Without stacks of the server (404), the base alone makes the stack.
#[tokio::test]
async fn a_stacked_pull_request_is_opened_into_the_branch_below() {
    let desk = Desk::new().await;
    let forge = desk.forge();
    forge.open(&desk.request(0)).await.unwrap();
    let base = forge.base(BRANCH).await.unwrap();
    assert_eq!(
        (base.branch.as_str(), base.below.as_deref()),
        (BRANCH, Some("#1"))
    );
    let base = forge.base("main").await.unwrap();
    assert_eq!((base.branch.as_str(), base.below.as_deref()), ("main", None));
    let opened = forge.open(&child(&desk, 1)).await.unwrap();
    assert_eq!(opened.warnings, Vec::<String>::new());
    assert_eq!(base_of(&desk, 2), BRANCH);
    // The one below changes this file too, which is no conflict.
    let files = ["one".to_owned()];
    assert_eq!(forge.overlaps(CHILD, BRANCH, &files).await.unwrap(), []);
    assert_eq!(forge.overlaps("other", "main", &files).await.unwrap().len(), 1);
    assert_eq!(retarget(&desk, &forge).await, []);
}

#[tokio::test]
async fn a_stack_of_the_server_is_made_and_grows() {
    let desk = need!(Desk::validated().await);
    desk.github.enable_stacks(REPO);
    let forge = desk.forge();
    let third = PullRequest {
        branch: "ralph/t3/say-it-all".to_owned(),
        base_branch: CHILD.to_owned(),
        ..child(&desk, 2)
    };
    for request in [&desk.request(0), &child(&desk, 1), &third] {
        let opened = forge.open(request).await.unwrap();
        assert_eq!(opened.warnings, Vec::<String>::new());
    }
    assert_eq!(desk.github.stacks(REPO), [[1, 2, 3]]);
    let writes = desk.count("POST /repos/acme/widget/stacks");
    for request in [&child(&desk, 1), &third] {
        forge.open(request).await.unwrap();
    }
    assert_eq!(desk.count("POST /repos/acme/widget/stacks"), writes);
    desk.expect_clean();
}

/// Trap 10: the child of a merged pull request is moved to its base, so it stays open when the branch is deleted.
#[tokio::test]
async fn a_base_branch_that_goes_does_not_take_the_child_with_it() {
    let desk = stacked().await;
    desk.github.merge_as("ada", REPO, 1);
    let done = retarget(&desk, &desk.forge()).await;
    assert_eq!(done.len(), 1, "{done:?}");
    for part in ["/pull/2 is now `main`", "/pull/1 is merged"] {
        assert!(done[0].text.contains(part), "{part}: {done:?}");
    }
    // A merge commit keeps the commits, so nothing is left to do.
    assert!(
        !done[0].needs_person && done[0].text.ends_with("is merged"),
        "{done:?}"
    );
    assert_eq!(desk.github.comments(REPO, 2).len(), 0);
    assert_eq!(retarget(&desk, &desk.forge()).await, []);
    desk.github.delete_branch(REPO, BRANCH);
    assert!(desk.github.is_open(REPO, 2));
    assert_eq!(base_of(&desk, 2), "main");
    desk.forge().open(&child(&desk, 2)).await.unwrap();
}

/// Trap 10: after a squash or a rebase the commits below are others, and a person has to leave the old ones out. The command that
/// ralph gives does that, also with names that a shell would obey.
#[rstest::rstest]
#[case::squash(CHILD, FakeGitHub::squash_as)]
#[case::rebase(CHILD, FakeGitHub::rebase_as)]
#[case::hostile("ralph/t2/a;touch${IFS}x", FakeGitHub::squash_as)]
#[tokio::test]
async fn a_squashed_base_needs_a_person_who_gets_the_command(
    #[case] branch: &str,
    #[case] merge: fn(&FakeGitHub, &str, &str, u64),
) {
    let desk = need!(Desk::validated().await);
    desk.forge().open(&desk.request(0)).await.unwrap();
    let upper = PullRequest {
        branch: branch.to_owned(),
        ..child(&desk, 1)
    };
    desk.forge().open(&upper).await.unwrap();
    merge(&desk.github, "ada", REPO, 1);
    let forge = desk.forge();
    let done = retarget(&desk, &forge).await;
    assert!(done.len() == 1 && done[0].needs_person, "{done:?}");
    for part in [
        "is now `main`",
        "by a squash or a rebase",
        "git rebase --onto origin/main",
    ] {
        assert!(done[0].text.contains(part), "{part}: {done:?}");
    }
    let [comment] = &desk.github.comments(REPO, 2)[..] else {
        panic!("{:?}", desk.github.comments(REPO, 2));
    };
    let (_, commands) = comment.body.split_once("```sh\n").unwrap();
    let (commands, _) = commands.split_once("```").unwrap();
    let on_fake = desk.github.git(REPO, &["rev-parse", "--absolute-git-dir"]);
    git(desk.dir.path(), &["clone", "--quiet", on_fake.trim(), "person"]);
    let person = desk.dir.path().join("person");
    git(&person, &["config", "user.name", "ada"]);
    git(&person, &["config", "user.email", "ada@localhost"]);
    let ended = std::process::Command::new("sh")
        .args(["-ec", commands])
        .current_dir(&person)
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(!person.join("x").exists());
    let range = format!("main..{branch}");
    let log = desk.github.git(REPO, &["log", "--format=%s", &range]);
    assert_eq!(log.trim(), "two");
    assert_eq!(base_of(&desk, 2), "main");
    desk.expect_clean();
}

/// Two pollers find the same merged base: one changes the child and writes the comment.
#[tokio::test]
async fn one_of_two_pollers_writes_the_comment() {
    let desk = stacked().await;
    desk.github.squash_as("ada", REPO, 1);
    // Both have looked before the comment is there.
    let slow = || Fault::Slow(Duration::from_millis(500));
    desk.github
        .fail_next("GET", &format!("/repos/{REPO}/issues/2/comments"), slow());
    desk.github
        .fail_next("POST", &format!("/repos/{REPO}/issues/2/comments"), slow());
    let (first, second) = ((desk.forge(), claims(&desk)), (desk.forge(), claims(&desk)));
    let (one, two) = tokio::join!(
        first.0.retarget_stacked(&first.1),
        second.0.retarget_stacked(&second.1)
    );
    assert_eq!(one.unwrap().len() + two.unwrap().len(), 1);
    assert_eq!(desk.github.comments(REPO, 2).len(), 1);
    assert_eq!(base_of(&desk, 2), "main");
    assert_eq!(desk.count(&format!("PATCH /repos/{REPO}/pulls/2")), 1);
    assert_eq!(retarget(&desk, &desk.forge()).await, []);
}

/// Trap 10: a run that publishes again does the same.
#[tokio::test]
async fn an_update_moves_the_child_before_the_base_goes() {
    let desk = stacked().await;
    desk.github.merge_as("ada", REPO, 1);
    let opened = desk.forge().open(&child(&desk, 2)).await.unwrap();
    assert!(opened.warnings[0].contains("is now `main`"), "{opened:?}");
    desk.github.delete_branch(REPO, BRANCH);
    assert!(desk.github.is_open(REPO, 2));
    // A pull request that is not there yet is opened into the base of the merged one.
    let late = Desk::new().await;
    late.forge().open(&late.request(0)).await.unwrap();
    late.github.merge_as("ada", REPO, 1);
    late.github.delete_branch(REPO, BRANCH);
    let base = late.forge().base(BRANCH).await.unwrap();
    assert_eq!((base.branch.as_str(), base.below.as_deref()), ("main", None));
}

/// Trap 10: what happens otherwise. The branch has to be restored before the child can be reopened.
#[tokio::test]
async fn a_deleted_base_branch_closes_the_child_until_it_is_restored() {
    let desk = stacked().await;
    desk.github.delete_branch(REPO, BRANCH);
    assert!(!desk.github.is_open(REPO, 2));
    let error = desk.forge().open(&child(&desk, 2)).await.unwrap_err();
    assert!(
        matches!(&error, ForgeError::BaseDeleted { base, .. } if base == BRANCH),
        "{error:?}"
    );
    assert!(error.is_by_person());
    assert!(error.hint().unwrap().contains("restore the branch, then reopen"));
    let reopen = json!({ "state": "open" });
    let (status, text) = desk.try_patch_pull(2, &reopen).await;
    assert!(
        status == 422 && text.contains("branch was deleted"),
        "{status} {text}"
    );
    let (status, _) = desk.try_patch_pull(2, &json!({ "base": "main" })).await;
    assert_eq!(status, 422);
    let name = format!("refs/heads/{BRANCH}");
    desk.github
        .git(REPO, &["update-ref", &name, desk.commits[0].as_str()]);
    desk.patch_pull(2, &reopen).await;
    desk.forge().open(&child(&desk, 2)).await.unwrap();
}

/// The checks before a run that is resumed find where its commits belong now.
#[tokio::test]
async fn a_deleted_base_branch_is_no_obstacle_once_it_is_merged() {
    let desk = stacked().await;
    let planned = PlannedPullRequest {
        branch: CHILD.to_owned(),
        base_branch: Some(BRANCH.to_owned()),
        ..desk.planned()
    };
    let found = desk.forge().check(&planned).await.unwrap().unwrap();
    assert!(found.ends_with(&format!("into `{BRANCH}`")), "{found}");
    desk.github.merge_as("ada", REPO, 1);
    desk.github.delete_branch(REPO, BRANCH);
    let found = desk.forge().check(&planned).await.unwrap().unwrap();
    assert!(found.ends_with("into `main`"), "{found}");
    let closed = stacked().await;
    closed.github.close_as("ada", REPO, 1);
    closed.github.delete_branch(REPO, BRANCH);
    let error = closed.forge().check(&planned).await.unwrap_err();
    assert!(error.to_string().contains(BRANCH), "{error}");
}

/// Anyone can quote a marker, or write one into a pull request of a fork.
#[tokio::test]
async fn a_marker_alone_makes_no_stack() {
    for fork in ["eve/widget", "acme/copy"] {
        let desk = stacked().await;
        desk.github.fork_pull(REPO, 1, fork);
        assert_eq!(desk.forge().base(BRANCH).await.unwrap().below, None);
        desk.github.merge_as("ada", REPO, 1);
        expect_untouched(&desk).await;
    }
    let desk = stacked().await;
    desk.github.merge_as("ada", REPO, 1);
    desk.github.fork_pull(REPO, 2, "eve/widget");
    expect_untouched(&desk).await;
    let quoted = stacked().await;
    let text = format!("It said:\n\n{}\nSo I wrote this.", quoted.github.body(REPO, 2));
    quoted.patch_pull(2, &json!({ "body": text })).await;
    quoted.github.merge_as("ada", REPO, 1);
    expect_untouched(&quoted).await;
}

async fn expect_untouched(desk: &Desk) {
    let done = retarget(desk, &desk.forge()).await;
    assert_eq!(done, []);
    assert_eq!(base_of(desk, 2), BRANCH);
}

/// A poller looks again and again: one lookup for each base, which GitHub does not count, and no second try of what it refused.
#[tokio::test]
async fn a_look_that_finds_nothing_new_is_free() {
    let desk = stacked().await;
    let other = PullRequest {
        branch: "ralph/t3/say-it-all".to_owned(),
        ..child(&desk, 2)
    };
    desk.forge().open(&other).await.unwrap();
    let forge = desk.forge();
    retarget(&desk, &forge).await;
    let before = desk.github.requests().len();
    retarget(&desk, &forge).await;
    let requests = desk.github.requests().split_off(before);
    assert!(requests.iter().all(|request| !request.counted), "{requests:#?}");
    let lookups = requests.iter().filter(|request| request.path.contains("head="));
    assert_eq!(lookups.count(), 1, "{requests:#?}");

    desk.github.merge_as("ada", REPO, 1);
    let path = format!("/repos/{REPO}/pulls/2");
    desk.github.fail_next("PATCH", &path, Fault::Status(422));
    let lines = retarget(&desk, &forge).await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(
        (base_of(&desk, 2).as_str(), base_of(&desk, 3).as_str()),
        (BRANCH, "main")
    );
    let tries = desk.count(&format!("PATCH {path}"));
    assert_eq!(retarget(&desk, &forge).await, []);
    assert_eq!(desk.count(&format!("PATCH {path}")), tries);
    assert_eq!(retarget(&desk, &desk.forge()).await.len(), 1);
}

/// A branch that lives on after it was merged keeps its pull requests.
#[tokio::test]
async fn only_branches_of_ralph_that_ended_are_left() {
    let desk = Desk::new().await;
    desk.github.enable_stacks(REPO);
    desk.github.push_as("ada", REPO, "develop", "a.txt", "a\n");
    let url = format!("{}/repos/{REPO}/pulls", desk.github.url());
    let release = json!({"title": "Release", "head": "develop", "base": "main"});
    let call = reqwest::Client::new().post(url).bearer_auth(crate::desk::TOKEN);
    let answer = call
        .header("user-agent", "ada")
        .json(&release)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 201);
    let on_develop = PullRequest {
        base_branch: "develop".to_owned(),
        ..desk.request(0)
    };
    let base = desk.forge().base("develop").await.unwrap();
    assert_eq!((base.branch.as_str(), base.below), ("develop", None));
    desk.forge().open(&on_develop).await.unwrap();
    desk.forge().open(&child(&desk, 1)).await.unwrap();
    assert_eq!(desk.github.stacks(REPO), [[2, 3]]);
    desk.github.merge_as("ada", REPO, 1);
    assert_eq!(retarget(&desk, &desk.forge()).await, []);
    assert_eq!(base_of(&desk, 2), "develop");
    // The branch of a merged pull request of ralph that a person goes on with.
    desk.github.merge_as("ada", REPO, 2);
    desk.github.push_as("ada", REPO, BRANCH, "more.txt", "more\n");
    assert_eq!(retarget(&desk, &desk.forge()).await, []);
    assert_eq!(base_of(&desk, 3), BRANCH);
}

/// A run that is done, and a task that names its branch. Returns that branch.
fn below() -> (Site, String) {
    let site = Site::new(FakeGitHub::start());
    site.run(&script([whole_task()])).expect(0, &["done: "]);
    let below = site.github.pulls(REPO).remove(0).head;
    let dir = site.github.git(REPO, &["rev-parse", "--absolute-git-dir"]);
    let fetched = "refs/heads/*:refs/remotes/origin/*";
    site.place.git(&["fetch", "--quiet", dir.trim(), fetched]);
    site.set_task(&format!("base_branch: {below}\n"));
    (site, below)
}

/// The run below is merged and its branch deleted while the upper one rests.
#[test]
fn a_run_goes_on_after_its_base_branch_is_gone() {
    let (site, below) = below();
    let pause = doing([json!({"type": "pause", "reason": "look"})]);
    let more = ending([write("a.txt", "hello again\n"), commit("Say more")]);
    site.run(&script([pause, more])).expect(3, &["paused"]);
    site.github.merge_as("ada", REPO, 1);
    site.github.delete_branch(REPO, &below);
    site.ralph(&["resume"])
        .expect(0, &["done: ", "/acme/widget/pull/2"]);
    assert_eq!(site.github.pulls(REPO)[1].base, "main");
}

/// A whole run whose task names the branch of another run.
#[test]
fn a_run_on_top_of_another_run_says_so() {
    let (site, below) = below();
    let more = ending([write("a.txt", "hello again\n"), commit("Say more")]);
    let ended = site.run(&script([more]));
    ended.expect(0, &["done: ", "/acme/widget/pull/2"]);
    assert!(!ended.stderr.contains("changes the same files"), "{ended:?}");
    let pull = site.github.pulls(REPO).remove(1);
    assert_eq!(pull.base, below);
    let line = format!("Stacked on #1, the pull request of the base branch `{below}`");
    assert!(pull.body.contains(&line), "{}", pull.body);
    let (_, risks) = pull.body.split_once("Looked for:").unwrap();
    assert!(!risks.contains("Stacked on"), "{}", pull.body);
}
