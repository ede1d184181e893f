//! Signed evidence reaches others: the note of the commit is on GitHub, beside the notes of everybody else.

use std::path::Path;

use futures_util::future::join_all;
use jiff::Timestamp;
use ralph::evidence::NOTES_REF;
use ralph::id::ObjectId;
use ralph::scm::Forge;

use crate::desk::{Desk, REPO};
use crate::runs::Site;
use crate::support::fake_github::{FakeGitHub, Fault, Protection};
use crate::support::ralph::{finish, script, whole_task};

const PUSH: &str = "/acme/widget.git/git-receive-pack";

async fn note(desk: &Desk, commit: &ObjectId, line: &str) {
    let at = Timestamp::UNIX_EPOCH;
    let added = desk.repository.add_note_line(NOTES_REF, commit, line, at);
    added.await.unwrap();
}

/// The note of a commit on GitHub.
fn shared(desk: &Desk, commit: &ObjectId) -> String {
    desk.github
        .git(REPO, &["notes", "--ref", NOTES_REF, "show", commit.as_str()])
}

/// Another run, on another host, or a person adds a note on GitHub.
fn note_of_others(desk: &Desk, commit: &ObjectId, line: &str) {
    let args = ["notes", "--ref", NOTES_REF, "append", "-m", line, commit.as_str()];
    desk.github.git(REPO, &args);
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_that_are_pushed_at_the_same_time_are_all_kept() {
    let desk = Desk::new().await;
    note_of_others(&desk, &desk.base, "of a person");
    let commits: Vec<ObjectId> = desk.commits.iter().chain([&desk.base]).cloned().collect();
    for commit in &commits {
        note(&desk, commit, "of a run").await;
    }
    // One client each, as processes have them: they do not wait for each other.
    let forges: Vec<_> = commits.iter().map(|_| desk.forge()).collect();
    let pushes = forges
        .iter()
        .zip(&commits)
        .map(|(forge, commit)| forge.share_note(NOTES_REF, commit));
    for pushed in join_all(pushes).await {
        assert!(pushed.unwrap());
    }
    for commit in &desk.commits {
        assert_eq!(shared(&desk, commit).trim(), "of a run");
    }
    assert_eq!(shared(&desk, &desk.base).trim(), "of a person\nof a run");
    desk.github.git(REPO, &["fsck", "--strict"]);
}

#[tokio::test]
async fn a_note_is_pushed_once_and_alone() {
    let desk = Desk::new().await;
    let (mine, private) = (&desk.commits[0], &desk.commits[1]);
    note(&desk, mine, "one").await;
    note(&desk, private, "of a run that was never published").await;
    let forge = desk.forge();
    for _ in 0..2 {
        assert!(forge.share_note(NOTES_REF, mine).await.unwrap());
    }
    assert_eq!(desk.count(&format!("POST {PUSH}")), 1);
    let listed = desk.github.git(REPO, &["notes", "--ref", NOTES_REF, "list"]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    note_of_others(&desk, mine, "two");
    note(&desk, mine, "three").await;
    forge.share_note(NOTES_REF, mine).await.unwrap();
    let lines: Vec<String> = shared(&desk, mine).lines().map(str::to_owned).collect();
    assert_eq!(
        lines.iter().filter(|line| !line.is_empty()).count(),
        3,
        "{lines:?}"
    );
    assert!(!desk.dir.path().join("repo/.git/FETCH_HEAD").exists());
    desk.expect_clean();
}

/// The answer to a push is lost, before or after the server did it.
#[rstest::rstest]
#[case::after(Fault::DroppedAfter)]
#[case::before(Fault::DroppedBefore)]
#[tokio::test]
async fn a_lost_answer_loses_no_note(#[case] fault: Fault) {
    let desk = Desk::new().await;
    note_of_others(&desk, &desk.base, "of a person");
    note(&desk, &desk.commits[0], "of a run").await;
    desk.github.fail_next("POST", PUSH, fault);
    let shared_now = desk.forge().share_note(NOTES_REF, &desk.commits[0]).await;
    assert!(shared_now.unwrap());
    assert_eq!(desk.github.faults_left(), 0);
    assert_eq!(shared(&desk, &desk.commits[0]).trim(), "of a run");
    assert_eq!(shared(&desk, &desk.base).trim(), "of a person");
}

/// The command in the pull request verifies the evidence in a clone that has only what GitHub has.
#[test]
fn the_evidence_of_a_run_verifies_in_a_fresh_clone() {
    let site = Site::new(FakeGitHub::start());
    let key = site.place.run(&["evidence", "key"]);
    site.place
        .write(".ralph-evidence-keys/host.pem", &key.expect(0, &[]).stdout);
    site.place.git(&["add", "--", ".ralph-evidence-keys"]);
    site.place.git(&["commit", "--quiet", "--message", "A key"]);
    let dir = site.github.git(REPO, &["rev-parse", "--absolute-git-dir"]);
    site.place.git(&["push", "--quiet", dir.trim(), "main"]);
    site.run(&script([whole_task()])).expect(0, &["done: "]);

    let pull = site.github.pulls(REPO).remove(0);
    let command = format!(
        "git fetch origin {NOTES_REF}:{NOTES_REF} && ralph evidence verify {}",
        pull.head_sha
    );
    assert!(pull.body.contains(&format!("`{command}`")), "{}", pull.body);
    site.place.git(&["clone", "--quiet", dir.trim(), "../fresh"]);
    let program = site.place.ralph(&[]).get_program().to_owned();
    let bin = Path::new(&program).parent().unwrap().display().to_string();
    let verified = finish(
        &mut site
            .place
            .shell(&format!("cd ../fresh; PATH={bin}:$PATH; {command}")),
    );
    verified.expect(0, &[]);
    assert!(
        verified.stdout.starts_with("verified: signed with sha256:"),
        "{verified:?}"
    );
    site.expect_no_secret(&["CANARY"]);
}

#[test]
fn a_note_that_the_server_refuses_is_a_warning() {
    let site = Site::new(FakeGitHub::start());
    site.github.protect(REPO, NOTES_REF, Protection::PullRequestOnly);
    let ended = site.run(&script([whole_task()]));
    ended.expect(0, &["the signed evidence stays on this host", "GH006", "done: "]);
    site.expect_one_pull();
    let body = &site.github.pulls(REPO)[0].body;
    assert!(
        body.contains("verifies it where its git notes") && !body.contains("git fetch"),
        "{body}"
    );
}
