//! `ralph run --issue`: from a specification in an issue to a pull request, and the result back on the issue.

use serde_json::{Value, json};

use ralph::github::{GitHubCredential, IssueStatus, Issues};
use ralph::id::RepositoryName;
use ralph::scm::{Forge, PullRequest};
use ralph::secret::Secret;

use crate::desk::{Desk, REPO, TOKEN, quick};
use crate::need;
use crate::runs::Site;
use crate::support::fake_github::{FakeGitHub, Fault, LimitSettings, Role};
use crate::support::ralph::{Ended, Live, commit, doing, ending, eventually, finish, run, script, write};

pub const SPEC: &str = "---\nbranch: feature/hello\nbase: main\n---\nBoth files greet.\n\n## Write a.txt\n\n## Write b.txt\n\n\
    ## Write c.txt [blocked: not yet]\n";
pub const PERMISSIONS: [&str; 3] = ["contents:write", "pull_requests:write", "issues:write"];
pub const COMMANDS: &str =
    "[task]\ntest_command = \"sh test.sh\"\nverify_commands = [\"grep -q hello a.txt b.txt\"]\n";
/// No pauses between writes, which the fake allows too.
const PACE: &str = "writes_per_minute = 60000\nwrites_per_hour = 1000000\n";

/// A site for issues, without one. The commands that verify are on the base branch, too.
pub fn queue_site(github: FakeGitHub) -> Site {
    let site = Site::new(github);
    site.github.add_pat(TOKEN, "ralph-bot", &PERMISSIONS);
    site.github.set_limits(LimitSettings {
        primary: u32::MAX,
        writes_a_minute: usize::MAX,
        writes_an_hour: usize::MAX,
        ..LimitSettings::default()
    });
    site.github.add_collaborator(REPO, "ada", Role::Write);
    site.github.add_collaborator(REPO, "eve", Role::Read);
    publish(&site, "", COMMANDS);
    site
}

/// Writes the configuration, with these keys of `[forge]` and these sections, and pushes it to the base branch.
pub fn publish(site: &Site, forge: &str, sections: &str) {
    site.write_configuration(forge, &format!("{PACE}{sections}"));
    site.place.git(&["add", "ralph.toml"]);
    site.place
        .git(&["commit", "--quiet", "--allow-empty", "--message", "Configure"]);
    let dir = site.github.git(REPO, &["rev-parse", "--absolute-git-dir"]);
    site.place
        .git(&["push", "--quiet", "--force", dir.trim(), "HEAD:main"]);
}

/// An issue that Ada, who may write, has opened and labelled.
pub fn ready_issue(site: &Site, title: &str, body: &str) -> u64 {
    let issue = site.github.open_issue_as("ada", REPO, title, body);
    for label in ["Spec", "status:ready", "good first issue"] {
        site.github.label_as("ada", REPO, issue, label);
    }
    issue
}

/// A site with an issue.
pub fn site(github: FakeGitHub, body: &str) -> (Site, u64) {
    let site = queue_site(github);
    let issue = ready_issue(&site, "Say hello", body);
    (site, issue)
}

pub fn run_issue(site: &Site, issue: u64, script: &serde_json::Value) -> Ended {
    finish(site.scripted(script).args(["--issue", &issue.to_string()]))
}

fn all_of_it() -> serde_json::Value {
    script([ending([
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
    ])])
}

/// The labels are those, there is one comment of ralph with this, and no claim is left.
fn expect_mirrored(site: &Site, issue: u64, status: &str, comment: &str) {
    let mut labels = site.github.labels(REPO, issue);
    labels.sort();
    assert_eq!(labels, ["Spec", "good first issue", status]);
    let comments = site.github.comments(REPO, issue);
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert!(
        comments[0].body.starts_with("<!-- ralph-issue -->\n"),
        "{comments:?}"
    );
    assert!(comments[0].body.contains(comment), "{comments:?}");
    expect_no_claim(site);
}

fn expect_no_claim(site: &Site) {
    let refs = site.github.refs(REPO);
    assert!(!refs.keys().any(|name| name.contains("claims")), "{refs:?}");
}

#[test]
fn an_issue_ends_in_a_pull_request() {
    let (site, issue) = site(need!(FakeGitHub::start_validated()), SPEC);
    run_issue(&site, issue, &all_of_it()).expect(0, &["done: ", "/acme/widget/pull/2"]);
    site.expect_one_pull();
    let pull = site.github.pulls(REPO).remove(0);
    assert_eq!(
        (pull.head.as_str(), pull.base.as_str()),
        ("feature/hello", "main")
    );
    expect_mirrored(&site, issue, "status:done", "/acme/widget/pull/2");
    let body = site.github.body(REPO, issue);
    assert_eq!(
        body,
        SPEC.replace("a.txt\n", "a.txt [done]\n")
            .replace("b.txt\n", "b.txt [done]\n")
    );
    site.expect_no_secret(&["CANARY"]);
}

#[test]
fn what_a_run_cannot_do_needs_attention_and_keeps_the_ticked_steps() {
    let (site, issue) = site(FakeGitHub::start(), SPEC);
    let first = doing([
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
    ]);
    let pause = doing([json!({"type": "pause", "reason": "@ada which greeting?"})]);
    let rest = ending([run("grep -q Welsh .ralph/task.md ralph_task.md")]);
    run_issue(&site, issue, &script([first, pause, rest])).expect(3, &["paused: "]);
    expect_mirrored(&site, issue, "status:needs-attention", "@ada which greeting?");
    // Nothing is marked: the work is in no pull request yet.
    assert_eq!(site.github.body(REPO, issue), SPEC);
    // A person answers and makes it ready again: the same run goes on with the new text, and there is still one comment.
    let answered = SPEC.replace("Both files greet.", "Both files greet, in Welsh.");
    site.github.edit_issue_as("ada", REPO, issue, &answered);
    site.github
        .unlabel_as("ada", REPO, issue, "status:needs-attention");
    site.github.label_as("ada", REPO, issue, "status:ready");
    run_issue(&site, issue, &script([])).expect(0, &["done: "]);
    expect_mirrored(&site, issue, "status:done", "All steps are done");
    let task = std::fs::read_to_string(site.place.run_dir().join("ralph_task.md")).unwrap();
    assert!(task.contains("in Welsh"), "{task}");
    site.expect_one_pull();
    assert_eq!(site.github.pulls(REPO)[0].head, "feature/hello");
}

#[test]
fn an_issue_that_nothing_verifies_needs_attention() {
    let (site, issue) = site(FakeGitHub::start(), SPEC);
    publish(&site, "", "[task]\ntest_command = \"true\"\n");
    // What counts is the base branch, not the checkout.
    site.configure(COMMANDS);
    run_issue(&site, issue, &all_of_it()).expect(2, &["cannot become a task", "nothing verifies S1"]);
    expect_mirrored(&site, issue, "status:needs-attention", "nothing verifies S2");
    assert_eq!(site.place.runs().len(), 0);
}

#[test]
fn an_issue_without_a_branch_needs_attention() {
    let (site, issue) = site(FakeGitHub::start(), "## Write a.txt\n");
    run_issue(&site, issue, &all_of_it()).expect(2, &["`branch` is missing"]);
    expect_mirrored(&site, issue, "status:needs-attention", "`branch` is missing");
}

/// Refused with these words, and nothing is changed on GitHub.
fn expect_untouched(site: &Site, issue: u64, words: &[&str]) {
    let labels = site.github.labels(REPO, issue);
    run_issue(site, issue, &all_of_it()).expect(2, words);
    assert_eq!(site.github.labels(REPO, issue), labels);
    assert_eq!(site.github.comments(REPO, issue).len(), 0);
    assert_eq!(site.github.pulls(REPO).len(), 0);
    assert_eq!(site.place.runs().len(), 0);
    expect_no_claim(site);
}

#[test]
fn words_of_strangers_are_not_worked_on() {
    let (site, trusted) = site(FakeGitHub::start(), SPEC);
    let theirs = site.github.open_issue_as("eve", REPO, "Say hello", SPEC);
    for label in ["spec", "status:ready"] {
        site.github.label_as("ada", REPO, theirs, label);
    }
    expect_untouched(
        &site,
        theirs,
        &["the author of issue #2, @eve, does not have write permission"],
    );
    // The label of an issue of Ada, set again by a user who lost the permission since.
    site.github.unlabel_as("ada", REPO, trusted, "status:ready");
    site.github.label_as("eve", REPO, trusted, "status:ready");
    expect_untouched(
        &site,
        trusted,
        &["the label `status:ready` of issue #1 was set by @eve"],
    );
}

#[test]
fn only_open_and_ready_issues_without_open_dependencies_are_claimed() {
    let waiting = SPEC.replace("base: main\n", "base: main\ndepends: 2\n");
    let (site, issue) = site(FakeGitHub::start(), &waiting);
    let other = site.github.open_issue_as("ada", REPO, "Before", SPEC);
    expect_untouched(&site, other, &["issue #2 does not have the label `spec`"]);
    expect_untouched(&site, issue, &["issue #1 waits for #2"]);
    site.github.label_as("ada", REPO, other, "status:done");
    let third = site.github.open_issue_as("ada", REPO, "Blocks by GitHub", SPEC);
    site.github.block(REPO, issue, third);
    expect_untouched(&site, issue, &["issue #1 waits for #3"]);
    site.github.close_as("ada", REPO, third);
    site.github.close_as("ada", REPO, issue);
    expect_untouched(&site, issue, &["issue #1 is closed"]);
    site.github.reopen_as("ada", REPO, issue);
    run_issue(&site, issue, &all_of_it()).expect(0, &["done: "]);
}

#[test]
fn the_forge_must_push() {
    let (site, issue) = site(FakeGitHub::start(), SPEC);
    let local = |more: &[&str]| {
        let issue = issue.to_string();
        let args = [&["--issue", &issue, "--set", "forge.type=local"], more].concat();
        finish(site.scripted(&all_of_it()).args(args))
    };
    local(&[]).expect(2, &["issues need the forge `github`", "--push"]);
    let issue_text = issue.to_string();
    site.place.write(
        "ralph.toml",
        &std::fs::read_to_string(site.place.repo().join("ralph.toml"))
            .unwrap()
            .replace("[forge]\ntype = \"github\"\n", ""),
    );
    let ended = finish(
        site.scripted(&all_of_it())
            .args(["--issue", &issue_text, "--push"]),
    );
    ended.expect(0, &["done: "]);
    site.expect_one_pull();
}

/// An organisation that forbids pull requests is known before the work. If it forbids them meanwhile, the branch is pushed, and the
/// comment below the issue names it.
#[test]
fn an_issue_whose_pull_request_is_forbidden_names_the_branch() {
    let (site, issue) = site(FakeGitHub::start(), SPEC);
    site.github.forbid_pull_requests(REPO);
    let refused = run_issue(&site, issue, &all_of_it());
    assert_ne!(refused.code, Some(0), "{refused:?}");
    let reason = "forbidden by an organization policy";
    assert!(refused.stderr.contains(reason), "{refused:?}");
    assert!(!refused.stderr.contains("iteration 1"), "{refused:?}");
    assert_eq!(site.github.pulls(REPO).len(), 0);

    let (site, issue) = self::site(FakeGitHub::start(), SPEC);
    let slow = script([ending([
        run("until [ -e ../go ]; do sleep 0.1; done"),
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
    ])]);
    let go = site.place.path().join("go");
    let slow = serde_json::from_str(&slow.to_string().replace("../go", &go.display().to_string())).unwrap();
    let live = Live::start(site.scripted(&slow).args(["--issue", &issue.to_string()]));
    wait_for_run(&site, issue);
    site.github.forbid_pull_requests(REPO);
    std::fs::write(go, "").unwrap();
    live.wait()
        .expect(0, &["may not open the pull request", "/compare/main..."]);
    expect_mirrored(&site, issue, "status:done", "/acme/widget/tree/feature/hello");
    assert!(site.github.refs(REPO).contains_key("refs/heads/feature/hello"));
}

/// What GraphQL refuses is done by REST, one by one.
#[tokio::test]
async fn what_graphql_refuses_is_done_by_rest() {
    let desk = Desk::new().await;
    desk.github.add_pat(TOKEN, "ralph-bot", &PERMISSIONS);
    desk.github.add_collaborator(REPO, "ada", Role::Write);
    let number = desk.github.open_issue_as("ada", REPO, "Say hello", SPEC);
    for label in ["spec", "status:ready", "status:in-progress"] {
        desk.github.label_as("ada", REPO, number, label);
    }
    desk.github.unlabel_as("ada", REPO, number, "status:in-progress");
    let client = desk.client(GitHubCredential::Token(Secret::new(TOKEN)), quick());
    let issues = Issues::new(client, RepositoryName::parse(REPO).unwrap());
    let refusal = Fault::GraphQl("FORBIDDEN", "Resource not accessible by personal access token");
    desk.github.fail_next("POST", "/graphql", refusal);
    let status = Some(IssueStatus::InProgress);
    issues
        .update(number, status, |text| text.replace("greet", "wave"))
        .await
        .unwrap();
    let mut labels = desk.github.labels(REPO, number);
    labels.sort();
    assert_eq!(labels, ["spec", "status:in-progress"]);
    assert!(desk.github.body(REPO, number).contains("wave"));
    assert_eq!(desk.count("POST /graphql"), 1);
    assert_eq!(
        desk.count(&format!("DELETE /repos/{REPO}/issues/{number}/labels/")),
        1
    );
}

/// Waits until the run that the claim names works.
fn wait_for_run(site: &Site, issue: u64) {
    eventually("the run of the claim to work", || {
        let refs = site.github.refs(REPO);
        let claim = refs.get(&format!("refs/ralph/claims/{issue}"));
        let message = |sha: &String| site.github.git(REPO, &["log", "-1", "--format=%B", sha]);
        let message = claim.map(message).unwrap_or_default();
        let works = |dir: &std::path::PathBuf| {
            let id = dir.file_name().unwrap().to_string_lossy().into_owned();
            let journal = std::fs::read_to_string(dir.join("journal.jsonl"));
            message.contains(&id) && journal.is_ok_and(|journal| !journal.is_empty())
        };
        site.place.runs().iter().any(works)
    });
}

#[test]
fn ctrl_c_makes_the_issue_ready_again() {
    let (site, issue) = site(FakeGitHub::start(), SPEC);
    let slow = script([doing([write("a.txt", "hello\n"), run("touch started; sleep 60")])]);
    let mut command = site.scripted(&slow);
    let running = Live::start(command.args(["--issue", &issue.to_string()]));
    wait_for_run(&site, issue);
    assert!(
        site.github
            .labels(REPO, issue)
            .contains(&"status:in-progress".to_owned())
    );
    // A second process finds the issue taken.
    run_issue(&site, issue, &all_of_it()).expect(2, &["issue #1 does not have the label `status:ready`"]);
    running.signal("INT");
    running.wait().expect(3, &["Stopping."]);
    expect_mirrored(&site, issue, "status:ready", "ready again");
}

/// A run that waits for a person is resumed by its id: the issue is claimed for it, and shows the result.
#[test]
fn a_resumed_run_claims_its_issue_again() {
    let (site, issue) = site(FakeGitHub::start(), SPEC);
    let pause = doing([json!({"type": "pause", "reason": "which greeting?"})]);
    let rest = ending([
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
    ]);
    run_issue(&site, issue, &script([pause, rest])).expect(3, &["paused: "]);
    let name = format!("refs/ralph/claims/{issue}");
    let theirs = claim_of_another(&site, "2099-01-01T00:00:00Z");
    site.github.git(REPO, &["update-ref", &name, &theirs]);
    site.ralph(&["resume"])
        .expect(2, &["issue #1 is claimed by another until 2099"]);
    site.github.git(REPO, &["update-ref", "-d", &name]);
    site.ralph(&["resume"]).expect(0, &["done: "]);
    expect_mirrored(&site, issue, "status:done", "All steps are done");
    site.expect_one_pull();
}

/// A commit with a claim of another process, which holds until this time.
pub fn claim_of_another(site: &Site, until: &str) -> String {
    claim_with(
        site,
        &json!({"owner": "another", "epoch": 2, "until": until, "run": null}),
    )
}

/// The commit of a claim that says this.
pub fn claim_with(site: &Site, record: &Value) -> String {
    let message = record.to_string();
    let identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"];
    let commit = ["commit-tree", "main^{tree}", "-m", &message];
    let args = [&identity[..], &commit[..]].concat();
    site.github.git(REPO, &args).trim().to_owned()
}

/// While a run works, another process takes its claim over: the run ends and pushes nothing.
#[test]
fn a_run_that_lost_its_claim_leaves_the_issue_alone() {
    let (site, issue) = site(FakeGitHub::start(), SPEC);
    let slow = script([ending([
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
        run("sleep 4"),
    ])]);
    let mut command = site.scripted(&slow);
    let running = Live::start(command.args(["--issue", &issue.to_string()]));
    let name = format!("refs/ralph/claims/{issue}");
    wait_for_run(&site, issue);
    let theirs = claim_of_another(&site, "2099-01-01T00:00:00Z");
    site.github.git(REPO, &["update-ref", &name, &theirs]);
    running
        .wait()
        .expect(1, &["the claim on issue #1 was lost to another"]);
    assert_eq!(site.github.refs(REPO)[&name], theirs);
    assert_eq!(site.github.pulls(REPO).len(), 0);
    assert!(!site.github.refs(REPO).contains_key("refs/heads/feature/hello"));
}

/// Servers without drafts show unfinished work as ready for review, and a task can ask for a draft of finished work. What a
/// person wrote stays beside the marker.
#[tokio::test]
async fn only_the_marker_says_that_a_run_is_done() {
    let desk = need!(Desk::validated().await);
    desk.github.forbid_drafts(REPO);
    let client = desk.client(GitHubCredential::Token(Secret::new(TOKEN)), quick());
    let issues = Issues::new(client, RepositoryName::parse(REPO).unwrap());
    let working = PullRequest {
        draft: true,
        is_done: false,
        ..desk.request(0)
    };
    let forge = desk.forge();
    forge.open(&working).await.unwrap();
    assert!(!desk.github.pulls(REPO)[0].draft);
    let finished = async || issues.finished_pull_request(&working.run).await.unwrap();
    assert_eq!(finished().await, None);
    let edited = desk.github.body(REPO, 1).replace("All of it", "I read it");
    desk.github.edit_issue_as("ada", REPO, 1, &edited);
    forge.open(&working).await.unwrap();
    assert_eq!(desk.github.body(REPO, 1), edited);
    let done = PullRequest {
        is_done: true,
        ..working.clone()
    };
    for _ in 0..2 {
        forge.open(&done).await.unwrap();
    }
    assert!(finished().await.unwrap().ends_with("/pull/1"));
    assert_eq!(desk.github.body(REPO, 1).replace(" done -->", " -->"), edited);
    assert_eq!(desk.count("PATCH "), 1);
    desk.expect_clean();
}

/// Trap 3: GitHub refuses long comments too.
#[tokio::test]
async fn a_long_comment_is_cut_below_the_limit() {
    let desk = Desk::new().await;
    desk.github.add_pat(TOKEN, "ralph-bot", &PERMISSIONS);
    let issue = desk.github.open_issue_as("ada", REPO, "Say hello", "");
    let client = desk.client(GitHubCredential::Token(Secret::new(TOKEN)), quick());
    let issues = Issues::new(client, RepositoryName::parse(REPO).unwrap());
    let text = format!("```text\n{}```\n", "ä reason\n".repeat(20_000));
    for _ in 0..2 {
        issues.set_comment(issue, &text).await.unwrap();
    }
    let [comment] = &desk.github.comments(REPO, issue)[..] else {
        panic!("one comment");
    };
    assert!(comment.body.len() < 65_536 && comment.body.ends_with("ä reason\n```"));
    desk.expect_clean();
}
