//! A process dies with a branch that it pushed. The next owner of the claim goes on with that branch; a process that has lost
//! its claim cannot push.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use ralph::github::{Claim, ClaimAttempt, Claims, GitHubCredential, GitHubForge};
use ralph::id::RunId;
use ralph::scm::{Forge, ForgeError, PullRequest, ScmError};
use ralph::secret::Secret;
use rstest::rstest;
use tokio::sync::Mutex;

use crate::desk::{BRANCH, Desk, REPO, TOKEN, quick};
use crate::issues::{claim_with, publish, queue_site, ready_issue};
use crate::need;
use crate::poll::{another_host, greeting, is_done, poll, poll_on, spec, status, wait_for_work};
use crate::runs::Site;
use crate::support::fake_github::{FakeGitHub, Fault, PullView};
use crate::support::ralph::{Live, Place, eventually};

const RECEIVE: &str = "/acme/widget.git/git-receive-pack";
const LOOK: &str = "/acme/widget.git/info/refs?service=git-upload-pack";

/// A process of its own: with claims that end after `lease`.
struct Process {
    forge: Arc<GitHubForge>,
    claims: Claims,
}

impl Process {
    fn new(desk: &Desk, name: &str, lease: SignedDuration) -> Self {
        let credential = GitHubCredential::Token(Secret::new(TOKEN));
        let forge = Arc::new(desk.forge_with(credential, quick()));
        let claims = Claims::new(forge.clone(), name, lease);
        Self { forge, claims }
    }

    /// Claims issue 7 for a run.
    async fn claim(&self, run: &RunId) -> Mutex<Claim> {
        match self.claims.claim(7, Some(run.clone())).await.unwrap() {
            ClaimAttempt::Won(claim) => Mutex::new(claim),
            ClaimAttempt::Held(record) => panic!("{record:?}"),
        }
    }

    async fn push(&self, claim: &Mutex<Claim>, request: &PullRequest) -> Result<(), ForgeError> {
        let request = claim.lock().await.go_on_with(request);
        self.claims.push_branch(claim, &self.forge, &request).await
    }
}

/// The request of a run that knows only its own commit.
fn request(desk: &Desk, run: &str, commit: usize) -> PullRequest {
    PullRequest {
        run: RunId::parse(run).unwrap(),
        ours: vec![desk.commits[commit].clone()],
        ..desk.request(commit)
    }
}

fn branch(desk: &Desk) -> Option<String> {
    desk.github
        .refs(REPO)
        .get(&format!("refs/heads/{BRANCH}"))
        .cloned()
}

const FIRST: &str = "r23456789";
const SECOND: &str = "r98765432";

/// The second process takes the claim over, and replaces what the first one pushed. The first one is refused from then on,
/// whatever the branch is at, and the second one keeps its branch.
#[tokio::test]
async fn a_branch_is_handed_over_with_its_claim() {
    let desk = need!(Desk::validated().await);
    let first = Process::new(&desk, "first", SignedDuration::from_millis(200));
    let lost = request(&desk, FIRST, 0);
    let claim = first.claim(&lost.run).await;
    first.push(&claim, &lost).await.unwrap();
    assert_eq!(branch(&desk).as_deref(), Some(desk.commits[0].as_str()));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    // A fifteenth of this is waited for clocks that differ.
    let second = Process::new(&desk, "second", SignedDuration::from_secs(15));
    let next = request(&desk, SECOND, 1);
    let taken = second.claim(&next.run).await;
    // Before the second one has pushed: only the claim is against it.
    let later = request(&desk, FIRST, 2);
    let later = PullRequest {
        ours: desk.commits.clone(),
        ..later
    };
    let refused = first.push(&claim, &later).await.unwrap_err();
    let refused = format!("{refused:?}");
    assert!(
        refused.contains("ClaimLost") && refused.contains("second"),
        "{refused}"
    );
    assert_eq!(branch(&desk).as_deref(), Some(desk.commits[0].as_str()));
    second.push(&taken, &next).await.unwrap();
    assert_eq!(branch(&desk).as_deref(), Some(desk.commits[1].as_str()));
    let pushed = taken.lock().await.record.pushed.clone().unwrap();
    assert_eq!((pushed.name.as_str(), &pushed.commit), (BRANCH, &desk.commits[1]));
    assert_eq!(pushed.runs, [lost.run, next.run.clone()]);
    // A renewal keeps it.
    second
        .claims
        .renew(&mut *taken.lock().await, Some(next.run))
        .await
        .unwrap();
    assert_eq!(taken.lock().await.record.pushed, Some(pushed));
    desk.expect_clean();
}

/// The answer to the push is lost, and perhaps that to the next question too.
#[rstest]
#[tokio::test]
async fn a_lost_answer_to_the_push_changes_nothing(
    #[values(Fault::DroppedBefore, Fault::DroppedAfter, Fault::ExecutedThenStatus(502))] fault: Fault,
    #[values(false, true)] is_look_lost: bool,
) {
    let desk = Desk::new().await;
    let process = Process::new(&desk, "first", SignedDuration::from_mins(15));
    let request = request(&desk, FIRST, 0);
    let claim = process.claim(&request.run).await;
    desk.github.fail_next("POST", RECEIVE, fault);
    // The first look finds out what there is to push.
    desk.github.fail_next("GET", LOOK, Fault::Slow(Duration::ZERO));
    if is_look_lost {
        desk.github.fail_next("GET", LOOK, Fault::Status(502));
    }
    // A run tries a push again that failed for such a reason.
    if process.push(&claim, &request).await.is_err() {
        process.push(&claim, &request).await.unwrap();
    }
    assert_eq!(branch(&desk).as_deref(), Some(desk.commits[0].as_str()));
    process.claims.confirm(&mut *claim.lock().await).await.unwrap();
    let pushed = claim.lock().await.record.pushed.clone().unwrap();
    assert_eq!(pushed.commit, desk.commits[0]);
    assert_eq!(desk.github.faults_left(), 0);
}

/// A person committed to the branch. Neither the branch nor the claim moves.
#[tokio::test]
async fn a_commit_of_a_person_is_not_replaced() {
    let desk = Desk::new().await;
    let process = Process::new(&desk, "first", SignedDuration::from_mins(15));
    let ours = request(&desk, FIRST, 0);
    let claim = process.claim(&ours.run).await;
    process.push(&claim, &ours).await.unwrap();
    let theirs = desk.github.push_as("ada", REPO, BRANCH, "theirs.txt", "hi\n");
    let before = claim.lock().await.commit().to_owned();
    let refused = process.push(&claim, &request(&desk, FIRST, 1)).await.unwrap_err();
    let is_moved =
        matches!(&refused, ForgeError::Scm(ScmError::RefMoved { name, .. }) if name.ends_with(BRANCH));
    assert!(is_moved, "{refused}");
    assert_eq!(branch(&desk), Some(theirs));
    assert_eq!(claim.lock().await.commit(), before);
}

/// A run goes on after its claim was given up, with nothing new to push: the next claim says what was pushed, too.
#[tokio::test]
async fn a_branch_that_is_there_already_is_recorded() {
    let desk = Desk::new().await;
    let process = Process::new(&desk, "first", SignedDuration::from_mins(15));
    let ours = request(&desk, FIRST, 0);
    let claim = process.claim(&ours.run).await;
    process.push(&claim, &ours).await.unwrap();
    process.claims.release(claim.into_inner()).await.unwrap();
    let again = process.claim(&ours.run).await;
    assert_eq!(again.lock().await.record.pushed, None);
    process.push(&again, &ours).await.unwrap();
    let pushed = again.lock().await.record.pushed.clone().unwrap();
    assert_eq!((pushed.name.as_str(), &pushed.commit), (BRANCH, &desk.commits[0]));
}

/// The draft of an earlier run, whose text a person edited: the text stays, and its marker names the run that goes on. One that
/// a person closed is not opened again.
#[tokio::test]
async fn a_pull_request_of_an_earlier_run_is_the_next_ones() {
    let desk = need!(Desk::validated().await);
    let forge = desk.forge();
    let draft = PullRequest {
        draft: true,
        is_done: false,
        ..request(&desk, FIRST, 0)
    };
    forge.open(&draft).await.unwrap();
    let edited = desk.github.body(REPO, 1).replace("All of it", "I read it");
    desk.github.edit_issue_as("ada", REPO, 1, &edited);
    let next = PullRequest {
        ours: desk.commits.clone(),
        earlier_runs: vec![draft.run.clone()],
        ..request(&desk, SECOND, 1)
    };
    forge.open(&next).await.unwrap();
    let body = desk.github.body(REPO, 1);
    assert_eq!(body.replace(SECOND, FIRST).replace(" done -->", " -->"), edited);
    assert!(body.contains(SECOND) && body.contains(" done -->"), "{body}");
    assert!(!desk.github.pulls(REPO)[0].draft);
    desk.github.close_as("ada", REPO, 1);
    let third = PullRequest {
        ours: desk.commits.clone(),
        earlier_runs: vec![draft.run, next.run],
        ..request(&desk, "r45454545", 2)
    };
    let refused = forge.open(&third).await.unwrap_err();
    assert!(
        matches!(refused, ForgeError::Ended { how: "closed", .. }),
        "{refused}"
    );
    assert_eq!(desk.github.pulls(REPO).len(), 1);
    desk.expect_clean();
}

/// A renewal and a push of the same claim at the same time: neither waits for the other for ever.
#[tokio::test]
async fn renewals_and_pushes_do_not_block_each_other() {
    let desk = Desk::new().await;
    let process = Process::new(&desk, "first", SignedDuration::from_mins(15));
    let run = RunId::parse(FIRST).unwrap();
    let claim = process.claim(&run).await;
    let renew = async || {
        for _ in 0..10 {
            let mut claim = claim.lock().await;
            process.claims.renew(&mut claim, Some(run.clone())).await.unwrap();
        }
    };
    let push = async || {
        for index in [0, 1, 2, 0, 1] {
            let request = PullRequest {
                ours: desk.commits.clone(),
                ..request(&desk, FIRST, index)
            };
            process.push(&claim, &request).await.unwrap();
        }
    };
    let both = async { tokio::join!(renew(), push()) };
    tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
    assert_eq!(branch(&desk).as_deref(), Some(desk.commits[1].as_str()));
}

/// A site with an issue whose poller was killed between its push and the pull request, and another host.
fn killed_after_push() -> (Site, Place, u64) {
    let site = queue_site(FakeGitHub::start());
    publish(&site, "claim_seconds = 3\n", crate::issues::COMMANDS);
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let running = Live::start(&mut poll(&site, &greeting("sleep 2"), &[]));
    // Before that it asks for the permission to open pull requests.
    wait_for_work(&site, issue);
    let slow = Fault::Slow(Duration::from_secs(30));
    site.github
        .fail_next("POST", &format!("/repos/{REPO}/pulls"), slow);
    eventually("the branch is pushed", || heads(&site) == ["hello"]);
    running.signal("KILL");
    drop(running);
    assert_eq!(site.github.pulls(REPO).len(), 0);
    let other = another_host(&site);
    (site, other, issue)
}

/// The branches besides `main`.
fn heads(site: &Site) -> Vec<String> {
    let refs = site.github.refs(REPO);
    let heads = refs.keys().filter_map(|name| name.strip_prefix("refs/heads/"));
    heads.filter(|name| *name != "main").map(str::to_owned).collect()
}

fn only_pull(site: &Site) -> PullView {
    let mut pulls = site.github.pulls(REPO);
    assert_eq!(pulls.len(), 1);
    pulls.remove(0)
}

#[test]
fn the_branch_of_a_dead_process_is_used_again() {
    let (site, other, issue) = killed_after_push();
    let before = site.github.refs(REPO)["refs/heads/hello"].clone();
    let polling = Live::start(&mut poll_on(&site, &other, &greeting("true"), &[]));
    eventually("the issue is done", || is_done(&site, issue));
    polling.signal("INT");
    polling.wait().expect(0, &["done, "]);
    let pull = only_pull(&site);
    assert_eq!((pull.head.as_str(), pull.draft), ("hello", false));
    assert_eq!(heads(&site), ["hello"]);
    assert_ne!(site.github.refs(REPO)["refs/heads/hello"], before);
    assert_eq!(status(&site, issue), "done");
}

/// A person committed to the branch of the dead process: it is theirs, and another one is used.
#[test]
fn a_branch_that_a_person_changed_is_left() {
    let (site, other, issue) = killed_after_push();
    let theirs = site.github.push_as("ada", REPO, "hello", "theirs.txt", "hi\n");
    let polling = Live::start(&mut poll_on(&site, &other, &greeting("true"), &[]));
    eventually("the issue is done", || is_done(&site, issue));
    polling.signal("INT");
    polling.wait().expect(0, &["done, "]);
    assert_eq!(site.github.refs(REPO)["refs/heads/hello"], theirs);
    assert_eq!(heads(&site), ["hello", "hello-v2"]);
    assert_eq!(only_pull(&site).head, "hello-v2");
}

/// Anyone who can push can write a claim. One that names a branch which is not of this issue is not believed.
#[test]
fn a_claim_cannot_name_the_branch_of_others() {
    let site = queue_site(FakeGitHub::start());
    publish(&site, "claim_seconds = 3\n", crate::issues::COMMANDS);
    let issue = ready_issue(&site, "Say hello", &spec("hello", &[]));
    let main = site.github.refs(REPO)["refs/heads/main"].clone();
    let record = serde_json::json!({"owner": "eve", "epoch": 1, "until": "2020-01-01T00:00:00Z", "run": null,
        "pushed": {"name": "main", "commit": main, "runs": [FIRST]}});
    let claim = claim_with(&site, &record);
    let name = format!("refs/ralph/claims/{issue}");
    site.github.git(REPO, &["update-ref", &name, &claim]);
    let polling = Live::start(&mut poll(&site, &greeting("true"), &[]));
    eventually("the issue is done", || is_done(&site, issue));
    polling.signal("INT");
    polling.wait().expect(0, &["done, "]);
    assert_eq!(site.github.refs(REPO)["refs/heads/main"], main);
    assert_eq!(only_pull(&site).head, "hello");
}

/// Killed while it waited for CI, with a draft. Another host goes on with the same pull request.
#[test]
fn the_draft_of_a_dead_process_is_used_again() {
    let site = queue_site(FakeGitHub::start());
    let permissions = [&crate::issues::PERMISSIONS[..], &["checks:read", "statuses:read"]].concat();
    site.github.add_pat(TOKEN, "ralph-bot", &permissions);
    let waits = "[done]\nwait_for_ci = true\nci_settle_seconds = 600\nci_poll_seconds = 1\n";
    let sections = format!("{}{waits}", crate::issues::COMMANDS);
    publish(&site, "claim_seconds = 3\n", &sections);
    ready_issue(&site, "Say hello", &spec("hello", &[]));
    let running = Live::start(&mut poll(&site, &greeting("true"), &[]));
    eventually("the pull request is open", || !site.github.pulls(REPO).is_empty());
    running.signal("KILL");
    drop(running);
    let draft = only_pull(&site);
    let other = another_host(&site);
    let polling = Live::start(&mut poll_on(&site, &other, &greeting("true"), &[]));
    eventually("the pull request is of another run", || {
        only_pull(&site).body != draft.body
    });
    polling.signal("INT");
    polling.wait();
    let pull = only_pull(&site);
    assert_eq!((pull.number, pull.head.as_str()), (draft.number, "hello"));
    assert_ne!(pull.head_sha, draft.head_sha);
    assert_eq!(pull.body.matches("<!-- ralph-run: ").count(), 1);
    assert_eq!(heads(&site), ["hello"]);
}
