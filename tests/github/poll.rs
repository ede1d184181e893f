//! `ralph poll`: a queue of issues, what people do to them meanwhile, and several pollers of which some die.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::desk::REPO;
use crate::issues::{claim_of_another, publish, queue_site, ready_issue};
use crate::need;
use crate::runs::Site;
use crate::support::fake_github::{FakeGitHub, Fault, Recorded};
use crate::support::ralph::{Ended, Live, Place, commit, ending, eventually, run, script, write};

/// How many issues the pollers with faults work through, unless `RALPH_GITHUB_ISSUES` says otherwise.
const ISSUES: u64 = 20;
/// How many of them each poller works on at once.
const PARALLEL: usize = 2;

pub fn spec(branch: &str, depends: &[u64]) -> String {
    format!("---\nbranch: {branch}\ndepends: {depends:?}\n---\nGreet.\n\n## Write a.txt\n\n## Write b.txt\n")
}

/// Does all of it, after a command.
pub fn greeting(first: &str) -> Value {
    script([ending([
        run(first),
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
    ])])
}

/// `ralph poll` with a scripted model, on some host.
pub fn poll_on(site: &Site, place: &Place, script: &Value, args: &[&str]) -> Command {
    let file = place.path().join("script.json");
    std::fs::write(&file, script.to_string()).unwrap();
    let mut command = site.with_credential(place.ralph(&["poll", "--interval", "1", "--script"]));
    command.arg(file).args(args);
    command
}

pub fn poll(site: &Site, script: &Value, args: &[&str]) -> Command {
    poll_on(site, &site.place, script, args)
}

fn once(site: &Site, script: &Value) -> Ended {
    crate::support::ralph::finish(&mut poll(site, script, &["--once"]))
}

/// The only status label of an issue.
pub fn status(site: &Site, issue: u64) -> String {
    let labels = site.github.labels(REPO, issue);
    let status: Vec<&String> = labels
        .iter()
        .filter(|label| label.starts_with("status:"))
        .collect();
    match status[..] {
        [] => "none".to_owned(),
        [one] => one.trim_start_matches("status:").to_owned(),
        _ => panic!("issue {issue} has {labels:?}"),
    }
}

/// What the only comment of ralph says.
fn comment(site: &Site, issue: u64) -> String {
    let comments = site.github.comments(REPO, issue);
    assert_eq!(comments.len(), 1, "{comments:?}");
    comments[0].body.clone()
}

pub fn expect_no_claims(site: &Site) {
    let refs = site.github.refs(REPO);
    assert!(!refs.keys().any(|name| name.contains("claims")), "{refs:?}");
}

/// Waits until the run of an issue works.
pub fn wait_for_work(site: &Site, issue: u64) {
    eventually("the comment names the run", || {
        let comments = site.github.comments(REPO, issue);
        comments
            .iter()
            .any(|comment| comment.body.contains("works on this: run"))
    });
}

#[test]
fn dependent_issues_are_done_in_order() {
    let site = queue_site(need!(FakeGitHub::start_validated()));
    let last = ready_issue(&site, "Last", &spec("last", &[2]));
    let middle = ready_issue(&site, "Middle", &spec("middle", &[]));
    let first = ready_issue(&site, "First", &spec("first", &[]));
    site.github.block(REPO, middle, first);
    once(&site, &greeting("true")).expect(0, &["issue #1 waits for #2", "issue #2 waits for #3"]);
    for issue in [last, middle, first] {
        assert_eq!(status(&site, issue), "done");
        assert!(comment(&site, issue).contains("All steps are done"));
    }
    let heads: Vec<String> = site
        .github
        .pulls(REPO)
        .into_iter()
        .map(|pull| pull.head)
        .collect();
    assert_eq!(heads, ["first", "middle", "last"]);
    expect_no_claims(&site);
    site.expect_no_secret(&["CANARY"]);
}

/// What is written at GitHub for an issue, from its claim to its result. Labels of people stay.
#[test]
fn an_issue_needs_nine_writes() {
    let site = queue_site(FakeGitHub::start());
    let first = ready_issue(&site, "First", &spec("first", &[]));
    once(&site, &greeting("true")).expect(0, &["done, "]);
    let from = site.github.requests().len();
    let second = ready_issue(&site, "Second", &spec("second", &[first]));
    let running = Live::start(&mut poll(&site, &greeting("sleep 3"), &["--once"]));
    wait_for_work(&site, second);
    site.github.label_as("ada", REPO, second, "urgent");
    running.wait().expect(0, &["done, "]);
    assert!(site.github.labels(REPO, second).contains(&"urgent".to_owned()));
    let requests = site.github.requests().split_off(from);
    let is_write = |request: &&Recorded| {
        request.identity == "ralph-bot"
            && request.method != "GET"
            && !request.path.ends_with("/git-upload-pack")
    };
    let mut writes: Vec<String> = requests.iter().filter(is_write).map(write_kind).collect();
    writes.sort();
    let expected = [
        "PATCH repos/acme/widget/issues/comments/N",
        "POST graphql",
        "POST graphql",
        "POST repos/acme/widget/issues/3/comments",
        "POST repos/acme/widget/pulls",
        // Once for a process.
        "POST repos/acme/widget/pulls 422",
        "push claims",
        "push claims",
        "push heads",
        "push notes",
    ];
    assert_eq!(writes, expected, "{:?}", site.github.calls());
}

/// The kind of a write. Of a push, the kind of its refs.
fn write_kind(request: &Recorded) -> String {
    if request.path.ends_with("/git-receive-pack") {
        // A branch is pushed together with its claim.
        let kinds = ["heads", "claims", "notes"];
        let kind = kinds
            .iter()
            .find(|kind| request.body.contains(&format!("/{kind}/")));
        return format!("push {}", kind.unwrap_or(&"of another kind"));
    }
    let path = request.path.trim_start_matches('/');
    let path = match path.rsplit_once("/comments/") {
        Some((before, _)) => format!("{before}/comments/N"),
        None => path.to_owned(),
    };
    let refused = if request.status == 422 { " 422" } else { "" };
    format!("{} {path}{refused}", request.method)
}

/// The token is that of the person who labels.
#[test]
fn a_person_can_poll_with_their_own_token() {
    let site = queue_site(FakeGitHub::start());
    site.github
        .add_pat(crate::desk::TOKEN, "ada", &crate::issues::PERMISSIONS);
    let first = ready_issue(&site, "First", &spec("first", &[]));
    let second = ready_issue(&site, "Second", &spec("second", &[first]));
    let held = ready_issue(&site, "Held", &spec("held", &[first]));
    site.github.unlabel_as("ada", REPO, held, "status:ready");
    site.github.label_as("ada", REPO, held, "status:blocked");
    once(&site, &greeting("true")).expect(0, &["issue #3: issue #3 is blocked by a person"]);
    assert_eq!(
        [first, second, held].map(|issue| status(&site, issue)),
        ["done", "done", "blocked"]
    );
}

/// A person stops the run of a poller: the issue is not claimed again at once.
#[test]
fn a_run_that_a_person_stops_stays_stopped() {
    let site = queue_site(FakeGitHub::start());
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let running = Live::start(&mut poll(&site, &greeting("sleep 60"), &["--once"]));
    wait_for_work(&site, issue);
    site.ralph(&["stop"]).expect(0, &[]);
    running
        .wait()
        .expect(3, &["needs attention: a person stopped the run"]);
    assert_eq!(status(&site, issue), "needs-attention");
    assert_eq!(site.place.runs().len(), 1);
}

/// An issue whose base is the branch of another one: when that is merged, the pull request moves before the branch goes.
#[test]
fn a_stacked_issue_outlives_its_base() {
    let site = queue_site(FakeGitHub::start());
    ready_issue(&site, "Below", &spec("below", &[]));
    let above = spec("above", &[1]).replace("branch: above\n", "branch: above\nbase: below\n");
    ready_issue(&site, "Above", &above);
    // The second run finds the files of the first one, and changes one.
    let both = greeting("echo once more >> c.txt");
    once(&site, &both).expect(0, &["issue #2 waits for #1"]);
    let base = |number: u64| {
        let pulls = site.github.pulls(REPO);
        let pull = pulls.into_iter().find(|pull| pull.number == number).unwrap();
        (pull.base, pull.open)
    };
    assert_eq!(base(4), ("below".to_owned(), true));
    site.github.merge_as("ada", REPO, 3);
    let running = Live::start(&mut poll(&site, &both, &[]));
    eventually("the base is changed", || base(4).0 == "main");
    site.github.delete_branch(REPO, "below");
    assert_eq!(base(4), ("main".to_owned(), true));
    running.signal("INT");
    running.wait().expect(0, &["pull/4"]);
}

/// A reviewer asks for a change after the issue is done: the run goes on, and answers.
#[test]
fn reviews_continue_the_run_of_an_issue() {
    let site = queue_site(FakeGitHub::start());
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let first = [
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
    ];
    let second = [write("c.txt", "bye\n"), commit("Say bye")];
    let third = [run("sleep 3"), write("d.txt", "because\n"), commit("Say why")];
    let answers = script([ending(first), ending(second), ending(third)]);
    once(&site, &answers).expect(0, &["done, "]);
    let before = site.github.pulls(REPO).remove(0);
    site.github
        .review_as("ada", REPO, before.number, "CHANGES_REQUESTED", "Say bye too.");
    once(&site, &answers).expect(0, &["goes on with its reviews", "done, "]);
    assert_eq!(status(&site, issue), "done");
    let after = site.github.pulls(REPO).remove(0);
    assert_eq!(after.number, before.number);
    assert_ne!(after.head_sha, before.head_sha);
    let comments = site.github.comments(REPO, after.number);
    let is_answer = |body: &str| body.contains(&after.head_sha[..7]);
    assert!(
        comments.iter().any(|comment| is_answer(&comment.body)),
        "{comments:?}"
    );
    // A round that is interrupted goes on: after Ctrl-C the issue is still done, and the next poller goes on.
    site.github
        .review_as("ada", REPO, before.number, "CHANGES_REQUESTED", "And say why.");
    let running = Live::start(&mut poll(&site, &answers, &[]));
    wait_for_work(&site, issue);
    running.signal("INT");
    running.wait().expect(0, &["stopped, ready again"]);
    assert_eq!(status(&site, issue), "done");
    once(&site, &answers).expect(0, &["goes on with its reviews", "done, "]);
    assert_eq!(status(&site, issue), "done");
    // Nothing is new: no run goes on.
    let ended = once(&site, &answers);
    ended.expect(0, &[]);
    assert!(!ended.stderr.contains("goes on"), "{ended:?}");
    expect_no_claims(&site);
}

/// While a run works, a person does something; then this is the status, and the comment says this. Nothing is pushed.
fn interfere(act: impl FnOnce(&Site, u64), expected: &str, said: &str) {
    let site = queue_site(FakeGitHub::start());
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let running = Live::start(&mut poll(&site, &greeting("sleep 6"), &[]));
    wait_for_work(&site, issue);
    act(&site, issue);
    eventually("the work ends", || comment(&site, issue).contains(said));
    eventually("the claim is given up", || {
        !site.github.refs(REPO).keys().any(|name| name.contains("claims"))
    });
    assert_eq!(status(&site, issue), expected);
    assert_eq!(site.github.pulls(REPO).len(), 0);
    running.signal("INT");
    running
        .wait()
        .expect(if expected == "needs-attention" { 3 } else { 0 }, &[]);
}

#[test]
fn a_closed_issue_stops_its_run() {
    interfere(
        |site, issue| site.github.close_as("ada", REPO, issue),
        "none",
        "because the issue was closed",
    );
}

#[test]
fn an_issue_that_is_no_specification_any_more_stops_its_run() {
    interfere(
        |site, issue| site.github.unlabel_as("ada", REPO, issue, "spec"),
        "none",
        "because the label `spec` was removed",
    );
}

#[test]
fn a_blocked_issue_pauses_its_run() {
    interfere(
        |site, issue| site.github.label_as("ada", REPO, issue, "status:blocked"),
        "blocked",
        "because the issue was blocked",
    );
}

#[test]
fn an_edit_that_cannot_become_a_task_pauses_its_run() {
    interfere(
        |site, issue| {
            site.github
                .edit_issue_as("ada", REPO, issue, "---\nbranch: hello\n---\nNo steps.\n");
        },
        "needs-attention",
        "the task has 0 checkboxes, and needs at least 1",
    );
}

#[test]
fn an_edit_changes_the_task_of_its_run() {
    let site = queue_site(FakeGitHub::start());
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let first = [
        run("sleep 4"),
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
    ];
    let answers = script([ending(first), ending([run("true")])]);
    let running = Live::start(&mut poll(&site, &answers, &["--once"]));
    wait_for_work(&site, issue);
    let more = spec("hello", &[]) + "\n## Write the same twice\n";
    site.github.edit_issue_as("ada", REPO, issue, &more);
    running.wait().expect(0, &["issue #1 (run ", "): done, "]);
    let body = site.github.body(REPO, issue);
    assert!(body.contains("## Write the same twice [done]"), "{body}");
}

#[test]
fn labels_and_comment_are_repaired() {
    let site = queue_site(FakeGitHub::start());
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let running = Live::start(&mut poll(&site, &greeting("sleep 8"), &["--once"]));
    wait_for_work(&site, issue);
    site.github.unlabel_as("ada", REPO, issue, "status:in-progress");
    eventually("the label is set again", || status(&site, issue) == "in-progress");
    site.github.label_as("ada", REPO, issue, "status:ready");
    eventually("the other label is removed", || {
        site.github.labels(REPO, issue).len() == 3 && status(&site, issue) == "in-progress"
    });
    running.wait().expect(0, &["done, "]);
    assert_eq!(status(&site, issue), "done");
}

/// How often the poller has looked at the issues.
fn ticks(site: &Site) -> usize {
    let requests = site.github.requests();
    let is_look = |request: &&Recorded| request.path.contains("/issues?labels=spec");
    requests.iter().filter(is_look).count()
}

/// The next tick that begins after a change has repaired the labels before it ends.
#[test]
fn labels_are_right_within_one_tick() {
    let site = queue_site(FakeGitHub::start());
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let running = Live::start(&mut poll(&site, &greeting("sleep 60"), &[]));
    wait_for_work(&site, issue);
    let expect_repaired = || {
        // One tick may have begun before the change. The one after the next begins when the next has ended.
        let before = ticks(&site);
        eventually("more ticks", || ticks(&site) > before + 2);
        assert_eq!(status(&site, issue), "in-progress");
    };
    site.github.unlabel_as("ada", REPO, issue, "status:in-progress");
    expect_repaired();
    site.github.label_as("ada", REPO, issue, "status:ready");
    expect_repaired();
    running.signal("INT");
    running.wait().expect(0, &["stopped, ready again"]);
    assert_eq!(status(&site, issue), "ready");
}

/// `--push` in place of the configuration, beside a limit of time and a new image.
#[test]
fn a_flag_pushes_in_place_of_the_configuration() {
    let site = queue_site(FakeGitHub::start());
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let configuration = std::fs::read_to_string(site.place.repo().join("ralph.toml")).unwrap();
    let local = configuration.replace("[forge]\ntype = \"github\"\n", "[forge]\ntype = \"local\"\n");
    site.place.write("ralph.toml", &local);
    once(&site, &greeting("true")).expect(2, &["issues need the forge `github`", "--push"]);
    let args = ["--once", "--push", "--timeout", "7", "--rebuild"];
    crate::support::ralph::finish(&mut poll(&site, &greeting("true"), &args)).expect(0, &["done, "]);
    assert_eq!(status(&site, issue), "done");
    let task = std::fs::read_to_string(site.place.run_dir().join("ralph_task.md")).unwrap();
    assert!(task.contains("max_wall_time_minutes: 7\n"), "{task}");
}

/// A poller is slow between its claim and the label, and another process finishes the issue: it stays finished.
#[test]
fn an_issue_that_was_finished_meanwhile_stays_finished() {
    let site = queue_site(FakeGitHub::start());
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    // The first look at who labelled it comes before the claim, the second one after it.
    let events = format!("/repos/{REPO}/issues/{issue}/events");
    for seconds in [0, 3] {
        let slow = Fault::Slow(Duration::from_secs(seconds));
        site.github.fail_next("GET", &events, slow);
    }
    let running = Live::start(&mut poll(&site, &greeting("true"), &[]));
    eventually("the poller looks again", || site.github.faults_left() == 0);
    site.github.unlabel_as("ada", REPO, issue, "status:ready");
    site.github.label_as("ada", REPO, issue, "status:done");
    eventually("the claim is made", || {
        site.github.refs(REPO).keys().any(|name| name.contains("claims"))
    });
    eventually("the claim is given up", || {
        !site.github.refs(REPO).keys().any(|name| name.contains("claims"))
    });
    running.signal("INT");
    running
        .wait()
        .expect(0, &["issue #1 does not have the label `status:ready` any more"]);
    assert_eq!(status(&site, issue), "done");
    assert_eq!(site.place.runs().len(), 0);
}

/// Four pollers on four hosts want the same issues: each is worked on once.
#[test]
fn four_pollers_share_the_issues() {
    let site = queue_site(FakeGitHub::start());
    let issues: Vec<u64> = (1..=8)
        .map(|number| {
            ready_issue(
                &site,
                &format!("Issue {number}"),
                &spec(&format!("issue/{number}"), &[]),
            )
        })
        .collect();
    let others = [(); 3].map(|()| another_host(&site));
    let places: Vec<&Place> = [&site.place].into_iter().chain(&others).collect();
    let start = |place: &&Place| Live::start(&mut poll_on(&site, place, &greeting("sleep 1"), &[]));
    let pollers: Vec<Live> = places.iter().map(start).collect();
    eventually("all issues are done", || {
        issues.iter().all(|issue| is_done(&site, *issue))
    });
    eventually("the claims are given up", || {
        !site.github.refs(REPO).keys().any(|name| name.contains("claims"))
    });
    for poller in pollers {
        poller.signal("INT");
        poller.wait().expect(0, &[]);
    }
    assert_eq!(site.github.pulls(REPO).len(), issues.len());
    let runs: usize = places.iter().map(|place| place.runs().len()).sum();
    assert_eq!(runs, issues.len());
    for issue in issues {
        assert_eq!(status(&site, issue), "done");
        comment(&site, issue);
    }
}

/// A reviewed run and a new one of the same poller: both claims are of one process, which renews them together.
#[test]
fn a_poller_has_one_name_in_all_its_claims() {
    let site = queue_site(FakeGitHub::start());
    ready_issue(&site, "First", &spec("first", &[]));
    let work = |name: &str| ending([run("sleep 20"), write(name, "hello\n"), commit(name)]);
    let done = ending([
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
    ]);
    once(&site, &script([done, work("c.txt")])).expect(0, &["done, "]);
    let pull = site.github.pulls(REPO).remove(0).number;
    site.github
        .review_as("ada", REPO, pull, "CHANGES_REQUESTED", "Say more.");
    let third = ready_issue(&site, "Third", &spec("third", &[]));
    let running = Live::start(&mut poll(
        &site,
        &script([work("d.txt")]),
        &["--max-parallel", "2"],
    ));
    let owner = |issue: u64| {
        let refs = site.github.refs(REPO);
        let claim = refs.get(&format!("refs/ralph/claims/{issue}"))?;
        let message = site.github.git(REPO, &["log", "-1", "--format=%B", claim]);
        let record: Value = serde_json::from_str(&message).unwrap();
        record["owner"].as_str().map(str::to_owned)
    };
    eventually("both are claimed", || {
        owner(1).is_some() && owner(third).is_some()
    });
    let (reviewed, new) = (owner(1), owner(third));
    running.signal("INT");
    running.wait().expect(0, &["goes on with its reviews"]);
    assert!(new.is_some() && reviewed == new, "{reviewed:?} {new:?}");
}

#[test]
fn ctrl_c_makes_all_issues_ready_again() {
    let site = queue_site(FakeGitHub::start());
    let issues = ["one", "two"].map(|name| ready_issue(&site, name, &spec(name, &[])));
    let running = Live::start(&mut poll(&site, &greeting("sleep 60"), &["--max-parallel", "2"]));
    for issue in issues {
        wait_for_work(&site, issue);
    }
    running.signal("INT");
    running.wait().expect(0, &["Stopping.", "stopped, ready again"]);
    for issue in issues {
        assert_eq!(status(&site, issue), "ready");
    }
    expect_no_claims(&site);
}

#[test]
fn only_wanted_issues_of_trusted_people_are_worked_on() {
    let site = queue_site(FakeGitHub::start());
    let wanted = ready_issue(&site, "Wanted", &spec("wanted", &[]));
    let unlabelled = ready_issue(&site, "Not now", &spec("not-now", &[]));
    site.github.label_as("ada", REPO, wanted, "tonight");
    let theirs = site.github.open_issue_as("eve", REPO, "Eve's", &spec("eve", &[]));
    for label in ["spec", "status:ready", "tonight"] {
        site.github.label_as("ada", REPO, theirs, label);
    }
    let args = ["--once", "--label", "Tonight"];
    let mut polled = poll(&site, &greeting("true"), &args);
    crate::support::ralph::finish(&mut polled).expect(
        0,
        &["issue #3: the author of issue #3, @eve, does not have write permission"],
    );
    assert_eq!(status(&site, wanted), "done");
    assert_eq!(status(&site, unlabelled), "ready");
    assert_eq!(status(&site, theirs), "ready");
    assert_eq!(site.github.comments(REPO, theirs).len(), 0);
    let args = ["--once", "--author", "eve"];
    crate::support::ralph::finish(&mut poll(&site, &greeting("true"), &args)).expect(0, &[]);
    assert_eq!(status(&site, unlabelled), "ready");
}

/// Ralph itself puts an issue back to ready or holds it back; that a person with write permission set it before still counts.
#[test]
fn an_app_goes_on_with_what_it_put_back() {
    let mut site = queue_site(FakeGitHub::start());
    site.use_app_with(&crate::issues::PERMISSIONS);
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let running = Live::start(&mut poll(&site, &greeting("sleep 3"), &[]));
    wait_for_work(&site, issue);
    running.signal("INT");
    running.wait().expect(0, &["stopped, ready again"]);
    once(&site, &greeting("sleep 3")).expect(0, &["done, "]);
    assert_eq!(status(&site, issue), "done");
    let requests = site.github.requests();
    let claims = requests
        .iter()
        .filter(|request| request.path.ends_with("/git-receive-pack") && request.body.contains("/claims/"));
    let by: BTreeSet<&str> = claims.map(|push| push.identity.as_str()).collect();
    assert_eq!(by, ["ralph-app[bot]"].into());
}

/// GitHub counts a request unless it answers that nothing has changed.
#[test]
fn looking_at_issues_that_do_not_change_is_free() {
    let site = queue_site(FakeGitHub::start());
    for number in 1..=120 {
        let body = spec(&format!("b{number}"), &[]);
        let issue = site.github.open_issue_as("ada", REPO, "Later", &body);
        site.github.label_as("ada", REPO, issue, "spec");
    }
    let running = Live::start(&mut poll(&site, &greeting("true"), &[]));
    let listings = || {
        let requests = site.github.requests();
        let is_listing = |request: &&Recorded| request.path.contains("/issues?");
        requests.iter().filter(is_listing).count()
    };
    // Two pages at each tick.
    eventually("some ticks", || listings() >= 8);
    running.signal("INT");
    running.wait().expect(0, &[]);
    let counted = site
        .github
        .requests()
        .iter()
        .filter(|request| request.counted)
        .count();
    // The versions of the API, the repository, its pull requests, the claims, and each page of issues: once each.
    assert_eq!(counted, 6, "{:?}", site.github.calls());
}

/// While runs work, a tick costs nothing either.
#[test]
fn looking_at_work_in_progress_is_free() {
    let site = queue_site(FakeGitHub::start());
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let running = Live::start(&mut poll(&site, &greeting("sleep 60"), &[]));
    wait_for_work(&site, issue);
    let requests = || site.github.requests();
    let counted = || requests().iter().filter(|request| request.counted).count();
    // What the first tick after the comment has to read again.
    let ticks = |after: usize| eventually("some ticks", || requests().len() >= after);
    ticks(requests().len() + 6);
    let (before, from) = (counted(), requests().len());
    ticks(from + 12);
    assert_eq!(counted(), before, "{:?}", &site.github.calls()[from..]);
    running.signal("INT");
    running.wait().expect(0, &["stopped, ready again"]);
}

/// A failure that passes, and a process that died between its claim and the label: the issue is not forgotten.
#[test]
fn an_issue_that_could_not_be_claimed_is_tried_again() {
    let site = queue_site(FakeGitHub::start());
    publish(&site, "claim_seconds = 3\n", crate::issues::COMMANDS);
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(15);
    let claim = claim_of_another(&site, &soon.to_string());
    let name = format!("refs/ralph/claims/{issue}");
    site.github.git(REPO, &["update-ref", &name, &claim]);
    for _ in 0..4 {
        let events = format!("/repos/{REPO}/issues/{issue}/events");
        site.github.fail_next("GET", &events, Fault::Status(502));
    }
    let running = Live::start(&mut poll(&site, &greeting("true"), &[]));
    eventually("the issue is done", || is_done(&site, issue));
    running.signal("INT");
    running
        .wait()
        .expect(0, &["502", "is claimed by another until", "done, "]);
    assert_eq!(site.github.faults_left(), 0);
}

/// The repository and the configuration of a site on another host.
pub fn another_host(site: &Site) -> Place {
    let place = Place::new();
    place.git(&["remote", "add", "origin", &site.github.git_url(REPO)]);
    let configuration = std::fs::read_to_string(site.place.repo().join("ralph.toml")).unwrap();
    place.write("ralph.toml", &configuration);
    place
}

pub fn is_done(site: &Site, issue: u64) -> bool {
    site.github
        .labels(REPO, issue)
        .contains(&"status:done".to_owned())
}

/// Waits for this many issues to be done.
fn wait_for_done(site: &Site, count: u64, all: u64) {
    let (started, timeout) = (Instant::now(), Duration::from_secs(120 + 20 * all));
    while (1..=all).filter(|issue| is_done(site, *issue)).count() < usize::try_from(count).unwrap() {
        assert!(
            started.elapsed() < timeout,
            "{count} of {all} issues are not done"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// No iteration is recorded twice in any run of this host. Returns how many there are.
fn expect_no_iteration_twice(place: &Place) -> usize {
    let mut all = 0;
    for dir in place.runs() {
        let mut seen = BTreeSet::new();
        for line in journal(&dir) {
            if line["entry"] == "recorded" {
                let iteration = line["iteration"].as_u64().unwrap();
                assert!(seen.insert(iteration), "{}: {iteration}", dir.display());
            }
        }
        all += seen.len();
    }
    all
}

fn journal(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("journal.jsonl")).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// What was pushed is what became a pull request.
fn expect_branches(site: &Site, heads: &BTreeSet<&str>) {
    let pushed = site.github.refs(REPO);
    let branches = pushed.keys().filter(|name| name.starts_with("refs/heads/issue/"));
    assert_eq!(branches.count(), heads.len(), "{pushed:?}");
}

/// Two hosts work through a graph of issues. One poller is killed and started again; the other is stopped for longer than
/// its claims hold, and goes on.
#[test]
fn pollers_that_die_and_sleep_do_each_issue_once() {
    let all = std::env::var("RALPH_GITHUB_ISSUES").map_or(ISSUES, |text| text.parse().unwrap());
    let site = queue_site(FakeGitHub::start());
    publish(&site, "claim_seconds = 8\n", crate::issues::COMMANDS);
    for number in 1..=all {
        // Each waits for the one at half its number.
        let depends: Vec<u64> = (number > 1).then_some(number / 2).into_iter().collect();
        ready_issue(
            &site,
            &format!("Issue {number}"),
            &spec(&format!("issue/{number}"), &depends),
        );
    }
    let other = another_host(&site);
    let slow = greeting("sleep 2");
    let start = |place: &Place| {
        Live::start(&mut poll_on(
            &site,
            place,
            &slow,
            &["--max-parallel", &PARALLEL.to_string()],
        ))
    };
    let (killed, sleeper) = (start(&site.place), start(&other));
    wait_for_done(&site, all / 4, all);
    killed.signal("KILL");
    drop(killed);
    let again = start(&site.place);
    wait_for_done(&site, all / 2, all);
    sleeper.signal("STOP");
    std::thread::sleep(Duration::from_secs(if all < ISSUES { 12 } else { 60 }));
    sleeper.signal("CONT");
    wait_for_done(&site, all, all);
    eventually("the claims are given up", || {
        !site.github.refs(REPO).keys().any(|name| name.contains("claims"))
    });
    for poller in [again, sleeper] {
        poller.signal("INT");
        poller.wait();
    }
    let pulls = site.github.pulls(REPO);
    let heads: BTreeSet<&str> = pulls.iter().map(|pull| pull.head.as_str()).collect();
    assert_eq!(pulls.len() as u64, all, "{heads:?}");
    assert_eq!(heads.len() as u64, all, "{heads:?}");
    expect_branches(&site, &heads);
    for number in 1..=all {
        assert_eq!(status(&site, number), "done");
        comment(&site, number);
    }
    let recorded = expect_no_iteration_twice(&site.place) + expect_no_iteration_twice(&other);
    assert!(recorded >= usize::try_from(all).unwrap(), "{recorded} iterations");
    expect_no_claims(&site);
}

/// Polls until an issue is done, with at most so many kills, each at a random request. Returns how many there were.
pub fn through_kills(site: &Site, issue: u64, script: &Value, most: usize) -> usize {
    let start = || Live::start(&mut poll(site, script, &[]));
    let claims = || {
        let refs = site.github.refs(REPO);
        refs.keys().filter(|name| name.contains("claims")).count()
    };
    let (mut running, mut kills) = (start(), 0);
    while kills < most {
        // Most requests are looks of a poller that waits for the end of the dead one's claim.
        let wanted = site.github.requests().len() + fastrand::usize(0..40);
        eventually("a request or the end", || {
            site.github.requests().len() >= wanted || is_done(site, issue)
        });
        assert!(claims() <= 1);
        if is_done(site, issue) {
            break;
        }
        running.signal("KILL");
        drop(running);
        kills += 1;
        running = start();
    }
    eventually("the issue is done", || is_done(site, issue) && claims() == 0);
    running.signal("INT");
    running.wait();
    assert_eq!(status(site, issue), "done");
    comment(site, issue);
    expect_no_iteration_twice(&site.place);
    kills
}

/// A process that was killed after its pull request was open, and before the label was set: nothing is done again.
#[test]
fn a_pull_request_of_a_dead_process_counts() {
    let site = queue_site(FakeGitHub::start());
    publish(&site, "claim_seconds = 3\n", crate::issues::COMMANDS);
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    // The label comes late enough to kill the process before.
    for _ in 0..20 {
        let labels = format!("/repos/{REPO}/issues/{issue}/comments");
        site.github
            .fail_next("GET", &labels, Fault::Slow(Duration::from_millis(700)));
    }
    let running = Live::start(&mut poll(&site, &greeting("true"), &[]));
    eventually("the pull request is open", || !site.github.pulls(REPO).is_empty());
    running.signal("KILL");
    drop(running);
    let other = another_host(&site);
    let polling = Live::start(&mut poll_on(&site, &other, &greeting("true"), &[]));
    eventually("the issue is done", || is_done(&site, issue));
    polling.signal("INT");
    polling
        .wait()
        .expect(0, &["whose process ended before it could say so"]);
    assert_eq!(site.github.pulls(REPO).len(), 1);
    assert_eq!(status(&site, issue), "done");
}

/// The same on a server without drafts, for a process that was killed while it waited for CI: its work is not done.
#[test]
fn an_unfinished_pull_request_of_a_dead_process_does_not_count() {
    let site = queue_site(FakeGitHub::start());
    let permissions = [&crate::issues::PERMISSIONS[..], &["checks:read", "statuses:read"]].concat();
    site.github.add_pat(crate::desk::TOKEN, "ralph-bot", &permissions);
    site.github.forbid_drafts(REPO);
    let waits = "[done]\nwait_for_ci = true\nci_settle_seconds = 600\nci_poll_seconds = 1\n";
    publish(
        &site,
        "claim_seconds = 3\n",
        &format!("{}{waits}", crate::issues::COMMANDS),
    );
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let running = Live::start(&mut poll(&site, &greeting("true"), &[]));
    eventually("the pull request is open", || !site.github.pulls(REPO).is_empty());
    running.signal("KILL");
    drop(running);
    assert!(!site.github.pulls(REPO)[0].draft);
    let other = another_host(&site);
    let polling = Live::start(&mut poll_on(&site, &other, &greeting("true"), &[]));
    eventually("another run works on it", || !other.runs().is_empty());
    assert_eq!(status(&site, issue), "in-progress");
    polling.signal("INT");
    polling.wait().expect(0, &["stopped, ready again"]);
}
