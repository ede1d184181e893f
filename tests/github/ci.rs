//! A run that waits for CI: what fails there is the input of the next iteration.

use std::time::Duration;

use ralph::scm::{CiReport, Forge};
use rstest::rstest;

use crate::desk::{Desk, PERMISSIONS, REPO, TOKEN};

use crate::runs::Site;
use crate::support::fake_github::{FakeGitHub, JobLog};
use crate::support::ralph::{Live, commit, doing, ending, eventually, run, script, whole_task, write};

const READS: [&str; 4] = [
    "contents:write",
    "pull_requests:write",
    "checks:read",
    "statuses:read",
];

async fn report(desk: &Desk) -> CiReport {
    desk.github
        .add_pat(TOKEN, "ralph-bot", &[&READS[..], &["actions:read"]].concat());
    desk.forge().ci(&desk.base).await.unwrap()
}

/// Trap 8: no checks are not a success, and every conclusion has its meaning.
#[rstest]
#[case::success("success", true)]
#[case::neutral("neutral", true)]
#[case::skipped("skipped", true)]
#[case::failure("failure", false)]
#[case::cancelled("cancelled", false)]
#[case::timed_out("timed_out", false)]
#[case::action_required("action_required", false)]
#[case::startup_failure("startup_failure", false)]
#[case::stale("stale", false)]
#[tokio::test]
async fn a_conclusion_passes_or_fails(#[case] conclusion: &str, #[case] passes: bool) {
    let desk = Desk::new().await;
    assert_eq!(report(&desk).await, CiReport::default());
    desk.github
        .set_check_run(REPO, desk.base.as_str(), "lint", "completed", Some(conclusion));
    let found = report(&desk).await;
    assert_eq!(
        (found.passed.len(), found.failed.len()),
        (usize::from(passes), usize::from(!passes)),
        "{found:?}"
    );
    desk.github
        .set_check_run(REPO, desk.base.as_str(), "build", "in_progress", None);
    desk.github
        .set_status(REPO, desk.base.as_str(), "deploy", "pending");
    let mut pending = report(&desk).await.pending;
    pending.sort();
    assert_eq!(pending, ["build", "deploy"]);
    desk.expect_clean();
}

/// Trap 8: of two runs of a check the newest counts.
#[tokio::test]
async fn a_check_that_ran_again_counts_once() {
    let desk = Desk::new().await;
    let sha = desk.base.as_str();
    desk.github
        .set_check_run(REPO, sha, "build", "completed", Some("failure"));
    desk.github
        .set_check_run(REPO, sha, "build", "completed", Some("success"));
    let found = report(&desk).await;
    assert_eq!((found.passed, found.failed.len()), (vec!["build".to_owned()], 0));
}

/// Trap 9: the log is read from another host, which must not get the token; one that is not there has a reason.
#[rstest]
#[case::written(
    JobLog::Text("2026-11-17T10:00:00.0000000Z \u{1b}[31merror: no\u{1b}[0m\n##[error]exit code 1\n".to_owned()),
    "error: no\n##[error]exit code 1"
)]
#[case::not_written(JobLog::NotWritten, "(it has no log)")]
#[case::expired(JobLog::Expired, "(its log has expired)")]
#[tokio::test]
async fn a_failure_has_the_end_of_its_log(#[case] log: JobLog, #[case] expected: &str) {
    let desk = Desk::new().await;
    let job = failing_job(&desk.github, desk.base.as_str(), "build", log);
    assert!(job > 0);
    let found = report(&desk).await;
    assert!(found.failed[0].log.contains(expected), "{found:?}");
    desk.expect_clean();
}

#[tokio::test]
async fn a_token_that_cannot_read_checks_is_reported_before_the_run() {
    let desk = Desk::new().await;
    let planned = ralph::scm::PlannedPullRequest {
        waits_for_ci: true,
        ..desk.planned()
    };
    desk.github.add_pat(TOKEN, "ralph-bot", &PERMISSIONS);
    let error = desk.forge().check(&planned).await.unwrap_err();
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains("`checks: read`"), "{error:?} {hint}");
}

/// A job of GitHub Actions that failed. It and its check run have one id.
fn failing_job(github: &FakeGitHub, sha: &str, name: &str, log: JobLog) -> u64 {
    let check = github.set_check_run(REPO, sha, name, "completed", Some("failure"));
    github.set_job_log(REPO, check, log);
    check
}

fn site() -> Site {
    let site = Site::new(FakeGitHub::start());
    site.github
        .add_pat(TOKEN, "ralph-bot", &[&READS[..], &["actions:read"]].concat());
    site.configure("[done]\nwait_for_ci = true\nci_settle_seconds = 1\nci_poll_seconds = 1\n");
    site
}

/// The commit of the only pull request, once it is there and differs from `before`.
fn next_head(site: &Site, before: &str) -> String {
    let mut head = String::new();
    eventually("a pull request with a new commit", || {
        head = site
            .github
            .pulls(REPO)
            .first()
            .map(|pull| pull.head_sha.clone())
            .unwrap_or_default();
        !head.is_empty() && head != before
    });
    head
}

#[test]
fn a_failure_of_ci_is_mended_in_the_next_iteration() {
    let site = site();
    let fix = ending([write("c.txt", "for CI\n"), commit("Mend CI")]);
    let live = Live::start(&mut site.scripted(&script([whole_task(), fix])));
    let first = next_head(&site, "");
    assert!(site.github.pulls(REPO)[0].draft && !says_done(&site));
    let log = JobLog::Text(format!(
        "step one\nPASSWORD={TOKEN}\n##[error]the linter objects\n"
    ));
    failing_job(&site.github, &first, "lint", log);
    let second = next_head(&site, &first);
    site.github
        .set_check_run(REPO, &second, "lint", "completed", Some("success"));
    live.wait()
        .expect(0, &["CI failed: lint", "done: ", "1 check of CI passed"]);
    let prompt = site.place.noted("iterations/2/prompt.md");
    assert!(
        prompt.contains("PASSWORD=[redacted]\n##[error]the linter objects"),
        "{prompt}"
    );
    assert!(!site.github.pulls(REPO)[0].draft && says_done(&site));
    site.expect_one_pull();
}

/// Whether the marker of the pull request says that the run is done.
fn says_done(site: &Site) -> bool {
    site.github.body(REPO, 1).trim_end().ends_with(" done -->")
}

#[test]
fn after_two_rounds_the_run_pauses() {
    let site = site();
    let again = |name: &str| ending([write(name, "x\n"), commit(name)]);
    let live = Live::start(&mut site.scripted(&script([whole_task(), again("c"), again("d"), again("e")])));
    let mut head = String::new();
    for _ in 0..3 {
        head = next_head(&site, &head);
        failing_job(&site.github, &head, "lint", JobLog::NotWritten);
    }
    live.wait().expect(
        3,
        &["paused: CI failed on commit", "after 2 attempts to mend it: lint"],
    );
    assert!(site.github.pulls(REPO)[0].draft);
    // A person who resumes it gives the agent more attempts, with what CI said.
    site.ralph(&["resume", "--note", "try again"])
        .expect(0, &["CI failed: lint", "done: "]);
}

/// An iteration that only looks at a failure of CI does not end the round. An agent that says that it is done without a commit
/// gets no second round with the same failure: the pull request says so, and a person decides.
#[test]
fn a_round_without_a_commit_needs_a_person() {
    let site = site();
    let (look, decided) = (doing([run("cat a.txt")]), ending([run("true")]));
    let live = Live::start(&mut site.scripted(&script([whole_task(), look, decided])));
    let head = next_head(&site, "");
    failing_job(&site.github, &head, "lint", JobLog::NotWritten);
    live.wait().expect(
        3,
        &[
            "paused: CI failed on commit",
            "and the agent reports the task as done without another commit: lint",
        ],
    );
    assert_eq!(site.place.status()["iterations"], 3);
    let flag = "`lint`: this check of CI failed on the commit, and the agent did not mend it";
    let pull = site.github.pulls(REPO).remove(0);
    assert!(pull.draft && pull.body.contains(flag), "{}", pull.body);
    // A person ran the check again, which was flaky.
    site.github
        .set_check_run(REPO, &head, "lint", "completed", Some("success"));
    site.ralph(&["resume"])
        .expect(0, &["done: ", "1 check of CI passed"]);
    assert_eq!(site.place.status()["iterations"], 3);
    let pull = site.github.pulls(REPO).remove(0);
    assert!(
        !pull.draft && !pull.body.contains("this check of CI"),
        "{}",
        pull.body
    );
}

/// Two jobs of the same name, of two workflows: the one that failed counts.
#[tokio::test]
async fn a_check_of_another_suite_hides_no_failure() {
    let desk = Desk::new().await;
    let sha = desk.base.as_str();
    desk.github
        .set_check_run_of(REPO, sha, 1, "build", Some("failure"));
    desk.github
        .set_check_run_of(REPO, sha, 2, "build", Some("success"));
    let found = report(&desk).await;
    assert_eq!((found.passed.len(), found.failed.len()), (1, 1), "{found:?}");
}

#[test]
fn a_commit_without_checks_is_done_after_the_settle_time() {
    let site = site();
    site.run(&script([whole_task()]))
        .expect(0, &["CI has no check of it after 1 s"]);
    assert!(!site.github.pulls(REPO)[0].draft);
}

/// A check that never ends does not keep the run forever: after `done.ci_minutes` a person decides.
#[test]
fn waiting_for_ci_has_a_limit() {
    let site = site();
    let mut command = site.scripted(&script([whole_task()]));
    let live = Live::start(command.args(["--set", "done.ci_minutes=1"]));
    let head = next_head(&site, "");
    site.github
        .set_check_run(REPO, &head, "build", "in_progress", None);
    live.wait()
        .expect(3, &["did not end within 1 minute; pending: build"]);
    assert!(site.github.pulls(REPO)[0].draft);
    site.github
        .set_check_run(REPO, &head, "build", "completed", Some("success"));
    site.ralph(&["resume"])
        .expect(0, &["done: ", "1 check of CI passed"]);
}

#[test]
fn waiting_for_ci_can_be_stopped() {
    let site = site();
    let live = Live::start(&mut site.scripted(&script([whole_task()])));
    let head = next_head(&site, "");
    site.github
        .set_check_run(REPO, &head, "build", "in_progress", None);
    std::thread::sleep(Duration::from_secs(2));
    site.ralph(&["stop"]).expect(0, &[]);
    live.wait().expect(3, &["stopped by a person"]);
    site.github
        .set_check_run(REPO, &head, "build", "completed", Some("success"));
    site.ralph(&["resume"])
        .expect(0, &["done: ", "1 check of CI passed"]);
    site.expect_one_pull();
}
