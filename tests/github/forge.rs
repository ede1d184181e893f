//! The forge on the fake: one pull request, whatever fails in between, and nothing of a person undone.

use ralph::github::{GitHubCredential, GitHubPace};
use ralph::scm::{Forge, ForgeError, PullRequest, ScmError};
use ralph::secret::Secret;
use rstest::rstest;
use std::time::Duration;

use crate::desk::{BRANCH, Desk, PERMISSIONS, REPO, TOKEN, basic, chain, commit, git, quick};
use crate::need;
use crate::support::fake_github::{FakeGitHub, Fault, Lag, LimitSettings, Protection, Role};

#[tokio::test]
async fn a_pull_request_is_opened_once_and_updated() {
    let desk = need!(Desk::validated().await);
    let forge = desk.forge();
    forge.check(&desk.planned()).await.unwrap();
    let opened = forge.open(&desk.request(0)).await.unwrap();
    assert_eq!(opened.warnings, Vec::<String>::new());
    assert!(
        opened.location.ends_with("/acme/widget/pull/1"),
        "{}",
        opened.location
    );
    desk.expect_one_pull(0);
    let pull = desk.github.pulls(REPO).remove(0);
    assert_eq!((pull.head.as_str(), pull.base.as_str()), (BRANCH, "main"));
    assert_eq!(pull.labels, ["ralph"]);
    assert!(!pull.draft);
    // Nothing changed: nothing is written.
    let writes = |desk: &Desk| desk.count("PATCH ") + desk.count("POST /repos");
    let before = writes(&desk);
    forge.open(&desk.request(0)).await.unwrap();
    assert_eq!(writes(&desk), before);
    forge.open(&desk.request(1)).await.unwrap();
    desk.expect_one_pull(1);
    assert_eq!(desk.count("PATCH "), 1);
    assert!(forge.is_at(BRANCH, &desk.commits[1]).await.unwrap());
    assert!(!forge.is_at(BRANCH, &desk.commits[0]).await.unwrap());
}

#[tokio::test]
async fn a_draft_becomes_ready_and_labels_of_people_stay() {
    let desk = need!(Desk::validated().await);
    let forge = desk.forge();
    let draft = PullRequest {
        draft: true,
        ..desk.request(0)
    };
    forge.open(&draft).await.unwrap();
    assert!(desk.github.pulls(REPO)[0].draft);
    desk.github.label_as("ada", REPO, 1, "urgent");
    forge.open(&desk.request(1)).await.unwrap();
    let pull = desk.github.pulls(REPO).remove(0);
    assert!(!pull.draft);
    assert_eq!(pull.labels, ["ralph", "urgent"]);
    desk.expect_one_pull(1);
}

/// Trap 1: the answer to the creation is lost, before or after GitHub did it, and lists do not show it for a while.
#[rstest]
#[case::dropped_after(Fault::DroppedAfter)]
#[case::dropped_before(Fault::DroppedBefore)]
#[case::failed_after(Fault::ExecutedThenStatus(502))]
#[case::failed_before(Fault::Status(500))]
#[tokio::test]
async fn a_lost_answer_makes_no_second_pull_request(
    #[case] fault: Fault,
    #[values(None, Some(Lag::Requests(2)))] lag: Option<Lag>,
) {
    let desk = Desk::new().await;
    desk.github.lag_new_pulls(lag);
    desk.github.fail_next("POST", "/repos/acme/widget/pulls", fault);
    desk.forge().open(&desk.request(0)).await.unwrap();
    assert_eq!(desk.github.faults_left(), 0);
    desk.expect_one_pull(0);
    // A second process, after a crash, finds it too.
    desk.forge().open(&desk.request(0)).await.unwrap();
    desk.expect_one_pull(0);
}

/// Trap 1: a lost answer to anything else is repeated, and leaves the same.
#[rstest]
#[case::update("PATCH", "/repos/acme/widget/pulls")]
#[case::labels("POST", "/repos/acme/widget/issues")]
#[case::ready("POST", "/graphql")]
#[case::list("GET", "/repos/acme/widget/pulls")]
#[tokio::test]
async fn other_lost_answers_are_harmless(
    #[case] method: &str,
    #[case] path: &str,
    #[values(Fault::DroppedAfter, Fault::ExecutedThenStatus(502), Fault::DroppedBefore)] fault: Fault,
) {
    let desk = Desk::new().await;
    let first = PullRequest {
        draft: true,
        labels: Vec::new(),
        ..desk.request(0)
    };
    desk.forge().open(&first).await.unwrap();
    desk.github.fail_next(method, path, fault);
    desk.forge().open(&desk.request(1)).await.unwrap();
    assert_eq!(desk.github.faults_left(), 0);
    let pull = desk.github.pulls(REPO).remove(0);
    assert_eq!(
        (pull.draft, pull.labels.as_slice()),
        (false, &["ralph".to_owned()][..])
    );
    desk.expect_one_pull(1);
}

/// Trap 2: REST does not see the branch yet, so the creation is refused; git does.
#[tokio::test]
async fn a_branch_that_rest_does_not_see_yet_is_waited_for() {
    let desk = Desk::new().await;
    desk.github.lag_pushes(Some(Lag::Requests(5)));
    let forge = desk.forge();
    forge.open(&desk.request(0)).await.unwrap();
    assert!(forge.is_at(BRANCH, &desk.commits[0]).await.unwrap());
    desk.expect_one_pull(0);
}

/// Trap 2: a branch that never appears ends in an error, not in a loop.
#[tokio::test]
async fn a_branch_that_never_appears_is_an_error() {
    let desk = Desk::new().await;
    desk.github.lag_pushes(Some(Lag::Time(Duration::from_secs(3600))));
    let error = desk.forge().open(&desk.request(0)).await.unwrap_err();
    assert!(matches!(error, ForgeError::Server { .. }), "{error:?}");
    assert_eq!(desk.github.pulls(REPO).len(), 0);
}

/// Trap 3: a text of any length is accepted.
#[tokio::test]
async fn a_long_text_is_cut_below_the_limit() {
    let desk = Desk::new().await;
    let request = PullRequest {
        body: "| M1.1 | `cargo test` | 0 |\n".repeat(5000),
        ..desk.request(0)
    };
    for _ in 0..2 {
        desk.forge().open(&request).await.unwrap();
    }
    assert!(desk.github.pulls(REPO)[0].body.len() <= 60_000);
    assert_eq!(desk.count("PATCH "), 0);
    desk.expect_one_pull(0);
}

/// Trap 4: secondary limits, with and without a header. No call of the account is made before the pause is over.
#[rstest]
#[case::forbidden(403, None)]
#[case::too_many(429, None)]
#[case::with_a_time(403, Some(1))]
#[tokio::test]
async fn a_secondary_limit_is_waited_out(#[case] status: u16, #[case] retry_after: Option<u32>) {
    let desk = Desk::new().await;
    let limit = Fault::SecondaryLimit { status, retry_after };
    desk.github
        .fail_next("POST", "/repos/acme/widget/pulls", limit.clone());
    desk.github.fail_next("GET", "/repos/acme/widget/pulls", limit);
    let started = std::time::Instant::now();
    desk.forge().open(&desk.request(0)).await.unwrap();
    let least = retry_after.map_or(quick().secondary_pause, |seconds| {
        Duration::from_secs(seconds.into())
    });
    assert!(started.elapsed() >= least * 2, "{:?}", started.elapsed());
    desk.expect_one_pull(0);
}

/// Trap 4: the pace of one client stays below the limits of the account, which the fake enforces.
#[tokio::test]
async fn many_runs_with_one_account_stay_below_the_limits() {
    let desk = Desk::new().await;
    // A minute takes half a second, and writes come as much faster.
    desk.github.set_limits(LimitSettings {
        minute: Duration::from_millis(500),
        hour: Duration::from_secs(30),
        parallel_writes: 1,
        write_takes: Duration::from_millis(2),
        ..LimitSettings::default()
    });
    let pace = GitHubPace {
        between_writes: Duration::from_millis(9),
        ..quick()
    };
    let forge = desk.forge_with(GitHubCredential::Token(Secret::new(TOKEN)), pace);
    let mut requests = Vec::new();
    for number in 0..50 {
        requests.push(PullRequest {
            branch: format!("ralph/t{number}/x"),
            ..desk.request(0)
        });
    }
    let opened = futures_util::future::join_all(requests.iter().map(|request| forge.open(request))).await;
    for opened in opened {
        opened.unwrap();
    }
    let limited = desk
        .github
        .requests()
        .iter()
        .filter(|request| matches!(request.status, 403 | 429))
        .count();
    assert_eq!(limited, 0);
    assert_eq!(desk.github.pulls(REPO).len(), 50);
}

/// Trap 5: an App gets tokens when it needs them, also for git, and again when they expire or its clock is off.
#[rstest]
#[case::same_time(0)]
#[case::ahead(45)]
#[case::behind(-45)]
#[tokio::test]
async fn an_app_pushes_and_opens_a_pull_request(#[case] offset: i64) {
    let desk = need!(Desk::validated().await);
    desk.github
        .set_clock_offset(jiff::SignedDuration::from_secs(offset));
    let app = desk.github.add_app("ralph-app", &PERMISSIONS, &[REPO]);
    let forge = desk.app_forge(&app);
    forge.check(&desk.planned()).await.unwrap();
    forge.open(&desk.request(0)).await.unwrap();
    assert_eq!(desk.count("POST /app/installations/"), 1);
    desk.expect_one_pull(0);
}

/// Trap 6: the token is neither in an argument, nor in a file of the repository, nor sent to another host.
#[tokio::test]
async fn a_token_leaves_no_trace_in_the_repository() {
    let desk = Desk::new().await;
    let repo = desk.dir.path().join("repo");
    // Settings that would send the user's own credentials, or ours elsewhere.
    git(
        &repo,
        &["config", "http.extraHeader", "Authorization: Basic bWluZTptaW5l"],
    );
    git(
        &repo,
        &[
            "config",
            "credential.helper",
            "!f() { echo username=mine; echo password=mine; }; f",
        ],
    );
    desk.forge().open(&desk.request(0)).await.unwrap();
    desk.expect_one_pull(0);
    let found = std::process::Command::new("grep")
        .args(["-r", "-l", "-e", "CANARY", "-e", &basic(TOKEN)])
        .arg(desk.dir.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(found.stdout).unwrap(), "");
}

/// Trap 7: changes of workflow files need a permission of their own.
#[tokio::test]
async fn a_workflow_file_without_its_permission_is_refused_with_its_name() {
    let desk = Desk::new().await;
    let repo = desk.dir.path().join("repo");
    let request = PullRequest {
        commit: commit(&repo, ".github/workflows/ci.yml", "on: push\n"),
        ..desk.request(0)
    };
    let error = desk.forge().open(&request).await.unwrap_err();
    assert!(
        matches!(&error, ForgeError::Scm(ScmError::PushRefused { .. })),
        "{error:?}"
    );
    let hint = error.hint().unwrap();
    assert!(hint.contains("`workflows: write`"), "{hint}");
    assert_eq!(desk.pushed(), None);
    desk.github.add_pat(
        TOKEN,
        "ralph-bot",
        &["contents:write", "pull_requests:write", "workflows:write"],
    );
    desk.forge().open(&request).await.unwrap();
}

/// Trap 14: what cannot work is refused before the run, by name.
#[tokio::test]
async fn what_cannot_work_is_refused_before_the_run() {
    let desk = need!(Desk::validated().await);
    let check = async |desk: &Desk| {
        let error = desk.forge().check(&desk.planned()).await.unwrap_err();
        let hint = error.hint().unwrap_or_default().into_owned();
        (chain(&error), hint)
    };
    desk.github
        .add_pat(TOKEN, "ralph-bot", &["contents:read", "pull_requests:write"]);
    let (error, hint) = check(&desk).await;
    assert!(
        error.contains("may not push to acme/widget") && hint.contains("`contents: write`"),
        "{error} / {hint}"
    );
    desk.github
        .add_pat(TOKEN, "ralph-bot", &["contents:write", "pull_requests:read"]);
    let (error, hint) = check(&desk).await;
    assert!(
        error.contains("403") && hint.contains("`pull_requests: write`"),
        "{error} / {hint}"
    );
    desk.github.add_pat(TOKEN, "ralph-bot", &PERMISSIONS);
    desk.github.set_archived(REPO, true);
    let (error, hint) = check(&desk).await;
    assert!(
        error.contains("is archived") && hint.contains("unarchive"),
        "{error} / {hint}"
    );
    desk.github.set_archived(REPO, false);
    desk.github.protect(REPO, BRANCH, Protection::PullRequestOnly);
    let (error, hint) = check(&desk).await;
    assert!(
        error.contains("ruleset") && hint.contains("git.branch_prefix"),
        "{error} / {hint}"
    );
    desk.github.revoke(TOKEN);
    let (error, hint) = check(&desk).await;
    assert!(
        error.contains("401") && hint.contains("GITHUB_PAT"),
        "{error} / {hint}"
    );
    assert_eq!(desk.github.pulls(REPO).len(), 0);
    assert_eq!(desk.pushed(), None);
    let missing = ralph::scm::PlannedPullRequest {
        base_branch: Some("develop".to_owned()),
        ..desk.planned()
    };
    desk.github.add_pat(TOKEN, "ralph-bot", &PERMISSIONS);
    let other = Desk::at(FakeGitHub::start()).await;
    let error = other.forge().check(&missing).await.unwrap_err();
    assert!(
        error.to_string().contains("`develop` is not on acme/widget"),
        "{error}"
    );
}

/// Trap 14: a renamed repository is used under its new name.
#[tokio::test]
async fn a_renamed_repository_is_followed() {
    let desk = Desk::new().await;
    desk.github.rename_repo(REPO, "acme/gadget");
    let forge = desk.forge();
    let found = forge.check(&desk.planned()).await.unwrap().unwrap();
    assert!(
        found.contains("acme/gadget (renamed from acme/widget)"),
        "{found}"
    );
    let opened = forge.open(&desk.request(0)).await.unwrap();
    assert!(
        opened.location.contains("/acme/gadget/pull/"),
        "{}",
        opened.location
    );
    assert_eq!(desk.github.pulls("acme/gadget").len(), 1);
}

/// Point 2: a commit of a person on the branch is never overwritten.
#[tokio::test]
async fn a_commit_of_a_person_is_never_overwritten() {
    let desk = Desk::new().await;
    let forge = desk.forge();
    forge.open(&desk.request(0)).await.unwrap();
    let theirs = desk.github.push_as("ada", REPO, BRANCH, "ada.txt", "mine\n");
    let error = forge.open(&desk.request(1)).await.unwrap_err();
    assert!(error.is_by_person(), "{error:?}");
    assert_eq!(desk.pushed(), Some(theirs));
    // A branch of the same name that was there before is a person's too.
    let other = Desk::new().await;
    let theirs = other.github.push_as("ada", REPO, BRANCH, "ada.txt", "mine\n");
    assert!(
        other
            .forge()
            .open(&other.request(0))
            .await
            .unwrap_err()
            .is_by_person()
    );
    assert_eq!(other.pushed(), Some(theirs));
}

/// Point 2: a branch that a retry took back is moved with an exact lease.
#[tokio::test]
async fn a_branch_of_ours_is_moved_back() {
    let desk = Desk::new().await;
    let forge = desk.forge();
    forge.open(&desk.request(2)).await.unwrap();
    forge.open(&desk.request(0)).await.unwrap();
    desk.expect_one_pull(0);
}

#[tokio::test]
async fn a_text_that_a_person_edited_is_left_alone() {
    let desk = Desk::new().await;
    let forge = desk.forge();
    forge.open(&desk.request(0)).await.unwrap();
    let edited = desk
        .github
        .body(REPO, 1)
        .replace("All of it", "I checked all of it");
    desk.github.edit_issue_as("ada", REPO, 1, &edited);
    let opened = forge.open(&desk.request(1)).await.unwrap();
    assert!(
        opened.warnings[0].contains("a person wrote or edited"),
        "{opened:?}"
    );
    assert_eq!(desk.github.body(REPO, 1), edited);
    assert_eq!(desk.pushed().unwrap(), desk.commits[1].as_str());
}

/// Of title, text, base and labels, what a person changed stays.
#[tokio::test]
async fn what_a_person_changed_stays() {
    let desk = Desk::new().await;
    let forge = desk.forge();
    forge.open(&desk.request(0)).await.unwrap();
    desk.github.unlabel_as("ada", REPO, 1, "ralph");
    desk.patch_pull(1, &serde_json::json!({"title": "feat: hello"}))
        .await;
    let opened = forge.open(&desk.request(1)).await.unwrap();
    assert!(
        opened.warnings[0].contains("a person wrote or edited"),
        "{opened:?}"
    );
    let pull = desk.github.pulls(REPO).remove(0);
    assert_eq!(pull.title, "feat: hello");
    assert_eq!(pull.labels, Vec::<String>::new());
    desk.github.push_as("ada", REPO, "release", "notes.txt", "1\n");
    desk.patch_pull(
        1,
        &serde_json::json!({"base": "release", "title": "t1: Say hello"}),
    )
    .await;
    forge.open(&desk.request(2)).await.unwrap();
    assert_eq!(desk.github.pulls(REPO)[0].base, "release");
}

#[tokio::test]
async fn a_long_title_is_cut() {
    let desk = Desk::new().await;
    let request = PullRequest {
        title: "long ".repeat(100),
        ..desk.request(0)
    };
    for _ in 0..2 {
        let opened = desk.forge().open(&request).await.unwrap();
        assert_eq!(opened.warnings, Vec::<String>::new());
    }
    assert!(desk.github.pulls(REPO)[0].title.chars().count() <= 250);
}

#[rstest]
#[case::closed("closed")]
#[case::merged("merged")]
#[tokio::test]
async fn a_pull_request_that_a_person_ended_is_not_opened_again(#[case] how: &str) {
    let desk = Desk::new().await;
    let forge = desk.forge();
    forge.open(&desk.request(0)).await.unwrap();
    match how {
        "closed" => desk.github.close_as("ada", REPO, 1),
        _ => desk.github.merge_as("ada", REPO, 1),
    }
    let error = forge.open(&desk.request(1)).await.unwrap_err();
    assert!(error.is_by_person() && error.to_string().contains(how), "{error}");
    assert_eq!(desk.github.pulls(REPO).len(), 1);
}

/// Trap 4: GitHub limits pushes too. Git shows no headers, so the pause is ralph's own, and holds for all calls.
#[rstest]
#[case(403)]
#[case(429)]
#[tokio::test]
async fn a_push_waits_for_a_limit(#[case] status: u16) {
    let desk = Desk::new().await;
    let limit = Fault::SecondaryLimit {
        status,
        retry_after: None,
    };
    desk.github
        .fail_next("POST", "/acme/widget.git/git-receive-pack", limit);
    desk.forge().open(&desk.request(0)).await.unwrap();
    assert_eq!(desk.github.faults_left(), 0);
    let requests = desk.github.requests();
    let refused = requests
        .iter()
        .position(|request| request.status == status)
        .unwrap();
    let pause = requests[refused + 1].began - requests[refused].ended;
    assert!(pause >= quick().secondary_pause, "{pause:?}");
    desk.expect_one_pull(0);
}

/// Trap 4: GraphQL says with status 200 that a limit is reached. The mutation had no effect and is made again.
#[rstest]
#[case("RATE_LIMITED", "API rate limit exceeded for user ID 1.")]
#[case("", "You have exceeded a secondary rate limit.")]
#[tokio::test]
async fn a_limit_of_graphql_is_waited_out(#[case] kind: &'static str, #[case] message: &'static str) {
    let desk = Desk::new().await;
    let draft = PullRequest {
        draft: true,
        is_done: false,
        ..desk.request(0)
    };
    desk.forge().open(&draft).await.unwrap();
    desk.github
        .fail_next("POST", "/graphql", Fault::GraphQl(kind, message));
    let before = std::time::Instant::now();
    desk.forge().open(&desk.request(0)).await.unwrap();
    assert!(before.elapsed() >= quick().secondary_pause);
    assert!(!desk.github.pulls(REPO)[0].draft);
    assert_eq!(desk.count("POST /graphql"), 2);
}

/// An organisation that forbids pull requests gets the branch, and the run says what to do.
#[tokio::test]
async fn a_forbidden_pull_request_leaves_the_branch() {
    let desk = Desk::new().await;
    desk.github.forbid_pull_requests(REPO);
    let opened = desk.forge().open(&desk.request(0)).await.unwrap();
    assert!(
        opened.location.ends_with(&format!("/tree/{BRANCH}")),
        "{}",
        opened.location
    );
    assert!(
        opened.warnings[0].contains("/compare/main..."),
        "{:?}",
        opened.warnings
    );
    assert_eq!(desk.pushed().unwrap(), desk.commits[0].as_str());
}

/// Trap 1: a stranger's branch of the same name in a fork is not ours.
#[tokio::test]
async fn the_branch_is_looked_up_with_its_owner() {
    let desk = Desk::new().await;
    desk.forge().open(&desk.request(0)).await.unwrap();
    let lists = desk.github.calls();
    let lists: Vec<&String> = lists
        .iter()
        .filter(|call| call.starts_with("GET /repos/acme/widget/pulls?"))
        .collect();
    assert!(!lists.is_empty());
    assert!(
        lists.iter().all(|call| call.contains("head=acme%3Aralph")),
        "{lists:?}"
    );
}

#[tokio::test]
async fn a_repository_that_the_token_may_not_see_is_reported_with_a_hint() {
    let desk = Desk::new().await;
    desk.github.add_collaborator(REPO, "ralph-bot", Role::None);
    let error = desk.forge().check(&desk.planned()).await.unwrap_err();
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains("may see it"), "{error:?} {hint}");
}
