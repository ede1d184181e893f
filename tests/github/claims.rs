//! Claims on issues: one winner of every race, whatever is lost on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use ralph::clock::Clock;
use ralph::github::{
    Claim, ClaimAttempt, ClaimRecord, Claims, GitHubClient, GitHubCredential, GitHubError, GitHubForge,
};
use ralph::id::{RepositoryName, RunId};
use ralph::secret::{Redactor, Secret};
use rstest::rstest;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::desk::{Desk, PERMISSIONS, REPO, TOKEN, quick};
use crate::need;
use crate::support::fake_github::{Fault, LimitSettings};

const LEASE: SignedDuration = SignedDuration::from_mins(15);

const RECEIVE: &str = "/acme/widget.git/git-receive-pack";
/// What git asks for to see where a ref is.
const LOOK: &str = "/acme/widget.git/info/refs?service=git-upload-pack";

/// How many races there are, unless `RALPH_GITHUB_RACES` says otherwise.
const RACES: u64 = 1000;
/// How many races are run at the same time. Pushes of several claims, of which some fail, race then, too.
const AT_ONCE: usize = 10;

/// A clock that is this many seconds ahead of the host's, or behind it.
#[derive(Clone, Default)]
struct Shifted(Arc<AtomicI64>);

impl Shifted {
    fn ahead(by: SignedDuration) -> Self {
        Self(Arc::new(by.as_secs().into()))
    }

    fn advance(&self, by: SignedDuration) {
        self.0.fetch_add(by.as_secs(), Ordering::SeqCst);
    }
}

impl Clock for Shifted {
    fn now(&self) -> Timestamp {
        Timestamp::now() + SignedDuration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

/// The claims of a process with this clock.
fn process_with(desk: &Desk, name: &str, clock: Shifted) -> Claims {
    let credential = GitHubCredential::Token(Secret::new(TOKEN));
    let (url, redactor) = (desk.github.url(), Redactor::default());
    let client = GitHubClient::new(url, credential, Arc::new(clock), redactor.clone(), quick());
    let repository = RepositoryName::parse(REPO).unwrap();
    let (client, git) = (Arc::new(client.unwrap()), desk.repository.clone());
    let forge = GitHubForge::new(client, repository, url, git, redactor);
    Claims::new(Arc::new(forge), name, LEASE)
}

/// The claims of a process whose clock is ahead by this much.
fn process(desk: &Desk, name: &str, ahead: SignedDuration) -> Claims {
    process_with(desk, name, Shifted::ahead(ahead))
}

fn now(desk: &Desk, name: &str) -> Claims {
    process(desk, name, SignedDuration::ZERO)
}

fn unlimited(desk: &Desk) {
    desk.github.set_limits(LimitSettings {
        primary: u32::MAX,
        writes_a_minute: usize::MAX,
        writes_an_hour: usize::MAX,
        ..LimitSettings::default()
    });
}

async fn won(claims: &Claims, issue: u64) -> Claim {
    match claims.claim(issue, None).await.unwrap() {
        ClaimAttempt::Won(claim) => claim,
        ClaimAttempt::Held(record) => panic!("{record:?}"),
    }
}

async fn held(claims: &Claims, issue: u64) -> ClaimRecord {
    match claims.claim(issue, None).await.unwrap() {
        ClaimAttempt::Won(claim) => panic!("{claim:?}"),
        ClaimAttempt::Held(record) => record,
    }
}

fn claim_ref(desk: &Desk, issue: u64) -> Option<String> {
    let refs = desk.github.refs(REPO);
    refs.get(&format!("refs/ralph/claims/{issue}")).cloned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_race_has_one_winner() {
    let races = std::env::var("RALPH_GITHUB_RACES").map_or(RACES, |text| text.parse().unwrap());
    let desk = Desk::new().await;
    unlimited(&desk);
    let start = Arc::new(Barrier::new(4));
    let mut processes = JoinSet::new();
    for name in ["a", "b", "c", "d"] {
        let (claims, start) = (now(&desk, name), start.clone());
        processes.spawn(async move {
            let mut won = Vec::new();
            for first in (1..=races).step_by(AT_ONCE) {
                let issues = first..(first + AT_ONCE as u64).min(races + 1);
                start.wait().await;
                let mut given_up = Vec::new();
                for attempt in join_all(issues.map(|issue| claims.claim(issue, None))).await {
                    if let ClaimAttempt::Won(claim) = attempt.unwrap() {
                        won.push(claim.issue);
                        given_up.push(claim);
                    }
                }
                // Every second claim stays; the others are free again after everybody has tried.
                start.wait().await;
                given_up.retain(|claim| claim.issue % 2 == 0);
                for released in join_all(given_up.into_iter().map(|claim| claims.release(claim))).await {
                    released.unwrap();
                }
            }
            won
        });
    }
    let mut winners: Vec<u64> = processes.join_all().await.concat();
    winners.sort_unstable();
    assert_eq!(winners, (1..=races).collect::<Vec<_>>());
    let left = desk.github.refs(REPO);
    let left = left.keys().filter(|name| name.starts_with("refs/ralph/claims/"));
    assert_eq!(left.count() as u64, races.div_ceil(2));
}

/// Four processes find a claim that has ended: one takes it over.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_process_takes_an_ended_claim_over() {
    let desk = Desk::new().await;
    unlimited(&desk);
    for issue in 1..=10 {
        let first = process(&desk, "first", -(LEASE + SignedDuration::from_secs(62)));
        let mut lost = won(&first, issue).await;
        let mut others = JoinSet::new();
        for name in ["a", "b", "c", "d"] {
            let claims = now(&desk, name);
            others.spawn(async move { claims.claim(issue, None).await.unwrap() });
        }
        let attempts = others.join_all().await;
        let epochs: Vec<u64> = attempts
            .iter()
            .filter_map(|attempt| match attempt {
                ClaimAttempt::Won(claim) => Some(claim.record.epoch),
                ClaimAttempt::Held(_) => None,
            })
            .collect();
        assert_eq!(epochs, [2], "{attempts:?}");
        let taken = claim_ref(&desk, issue);
        let error = first.renew(&mut lost, None).await.unwrap_err();
        assert!(matches!(error, GitHubError::ClaimLost { .. }), "{error:?}");
        // Nor can it delete what is not its own any more.
        first.release(lost).await.unwrap();
        assert_eq!(claim_ref(&desk, issue), taken);
    }
}

#[tokio::test]
async fn a_claim_holds_until_its_end_and_a_margin() {
    let desk = Desk::new().await;
    let first = now(&desk, "first");
    let mut claim = won(&first, 7).await;
    assert_eq!(claim.record.epoch, 1);
    let later = process(&desk, "later", LEASE + SignedDuration::from_secs(30));
    assert_eq!(held(&later, 7).await.owner, claim.record.owner);
    let run = RunId::parse("r23456789").unwrap();
    first.renew(&mut claim, Some(run.clone())).await.unwrap();
    assert_eq!(held(&later, 7).await.run, Some(run));
    assert_eq!(claim.record.epoch, 1);
    first.release(claim).await.unwrap();
    assert_eq!(claim_ref(&desk, 7), None);
    assert_eq!(won(&later, 7).await.record.epoch, 1);
}

#[tokio::test]
async fn claims_follow_the_api() {
    let desk = need!(Desk::validated().await);
    let (first, second) = (now(&desk, "first"), now(&desk, "second"));
    let mut claim = won(&first, 7).await;
    held(&second, 7).await;
    first.renew(&mut claim, None).await.unwrap();
    first.release(claim).await.unwrap();
    won(&second, 7).await;
    desk.expect_clean();
}

/// An answer is lost, and perhaps that to the next question too: nothing is done before it is known what happened.
#[rstest]
#[tokio::test]
async fn a_lost_answer_changes_nothing(
    #[values("create", "renew", "delete")] lost: &str,
    #[values(Fault::DroppedBefore, Fault::DroppedAfter, Fault::ExecutedThenStatus(502))] fault: Fault,
    #[values(false, true)] is_look_lost: bool,
) {
    let desk = Desk::new().await;
    let claims = now(&desk, "first");
    let lose = |step: &str| {
        if step == lost {
            desk.github.fail_next("POST", RECEIVE, fault.clone());
            if is_look_lost {
                desk.github.fail_next("GET", LOOK, Fault::Status(502));
            }
        }
    };
    lose("create");
    let mut claim = won(&claims, 7).await;
    lose("renew");
    claims.renew(&mut claim, None).await.unwrap();
    held(&now(&desk, "second"), 7).await;
    lose("delete");
    claims.release(claim).await.unwrap();
    assert_eq!(claim_ref(&desk, 7), None);
    assert_eq!(desk.github.faults_left(), 0);
}

/// The answer to a deletion is lost, and another process claims the issue before the first one looks.
#[tokio::test]
async fn a_repeated_deletion_spares_the_next_claim() {
    let desk = Desk::new().await;
    let (first, second) = (now(&desk, "first"), now(&desk, "second"));
    let claim = won(&first, 7).await;
    desk.github
        .fail_next("POST", RECEIVE, Fault::ExecutedThenStatus(502));
    let look = Fault::Slow(std::time::Duration::from_secs(2));
    desk.github.fail_next("GET", LOOK, look);
    let release = tokio::spawn(async move { first.release(claim).await });
    let mut next = loop {
        if let ClaimAttempt::Won(next) = second.claim(7, None).await.unwrap() {
            break next;
        }
    };
    release.await.unwrap().unwrap();
    second.renew(&mut next, None).await.unwrap();
    assert!(claim_ref(&desk, 7).is_some());
    assert_eq!(desk.github.faults_left(), 0);
}

/// A process slept, and another one finds that its claim has ended. It renews it before the other one removes it.
#[tokio::test]
async fn a_claim_that_is_renewed_after_its_end_is_not_removed() {
    let desk = Desk::new().await;
    let clock = Shifted::ahead(-(LEASE + SignedDuration::from_secs(62)));
    let (sleeper, other) = (process_with(&desk, "sleeper", clock.clone()), now(&desk, "other"));
    let mut claim = won(&sleeper, 7).await;
    let mut ended = other.ended().await.unwrap();
    assert_eq!(ended.len(), 1);
    clock.advance(LEASE);
    sleeper.renew(&mut claim, None).await.unwrap();
    let renewed = claim_ref(&desk, 7);
    other.release(ended.remove(0)).await.unwrap();
    assert_eq!(claim_ref(&desk, 7), renewed);
}

/// A claim with more than half of its lease left is not pushed again.
#[tokio::test]
async fn a_claim_is_confirmed_without_a_push() {
    let desk = Desk::new().await;
    let clock = Shifted::default();
    let claims = process_with(&desk, "first", clock.clone());
    let mut claim = won(&claims, 7).await;
    let made = claim_ref(&desk, 7);
    clock.advance(LEASE / 2 - SignedDuration::from_secs(20));
    claims.confirm(&mut claim).await.unwrap();
    assert_eq!(claim_ref(&desk, 7), made);
    clock.advance(SignedDuration::from_secs(40));
    claims.confirm(&mut claim).await.unwrap();
    assert_ne!(claim_ref(&desk, 7), made);
    assert_eq!(held(&now(&desk, "second"), 7).await, claim.record);
    // Another process, whose clock is wrong, has it now.
    won(&process(&desk, "third", LEASE * 3), 7).await;
    let error = claims.confirm(&mut claim).await.unwrap_err();
    assert!(matches!(error, GitHubError::ClaimLost { .. }), "{error:?}");
}

/// Claims of one process are made, renewed and given up together: 50 runs need no 50 pushes. One that another process has
/// spoils nothing.
#[tokio::test]
async fn claims_share_their_pushes() {
    let desk = Desk::new().await;
    let claims = now(&desk, "first");
    won(&now(&desk, "second"), 50).await;
    let before = desk.count("POST /acme/widget.git/git-receive-pack");
    let mut claimed = Vec::new();
    for attempt in join_all((1..=50).map(|issue| claims.claim(issue, None))).await {
        match attempt.unwrap() {
            ClaimAttempt::Won(claim) => claimed.push(claim),
            ClaimAttempt::Held(record) => assert!(record.owner.starts_with("second "), "{record:?}"),
        }
    }
    assert_eq!(claimed.len(), 49);
    for renewed in join_all(claimed.iter_mut().map(|claim| claims.renew(claim, None))).await {
        renewed.unwrap();
    }
    for claim in &claimed {
        assert_eq!(claim_ref(&desk, claim.issue).as_deref(), Some(claim.commit()));
    }
    for released in join_all(claimed.into_iter().map(|claim| claims.release(claim))).await {
        released.unwrap();
    }
    let left: Vec<u64> = (1..=50)
        .filter(|issue| claim_ref(&desk, *issue).is_some())
        .collect();
    assert_eq!(left, [50]);
    let pushes = desk.count("POST /acme/widget.git/git-receive-pack") - before;
    assert!(pushes <= 6, "{pushes} pushes");
}

/// The one who pushes for all is dropped meanwhile: the others push again.
#[tokio::test]
async fn a_dropped_push_is_made_by_the_others() {
    let desk = Desk::new().await;
    let claims = Arc::new(now(&desk, "first"));
    let slow = Fault::Slow(std::time::Duration::from_secs(60));
    desk.github.fail_next("POST", RECEIVE, slow);
    let pushing = tokio::spawn({
        let claims = claims.clone();
        async move { drop(claims.claim(1, None).await) }
    });
    let waiting = tokio::spawn({
        let claims = claims.clone();
        async move { won(&claims, 2).await }
    });
    while desk.github.faults_left() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    pushing.abort();
    waiting.await.unwrap();
    assert!(claim_ref(&desk, 2).is_some());
}

/// Claims are pushed with the token of an App, and with another one if GitHub has ended it early.
#[tokio::test]
async fn claims_of_an_app_get_another_token() {
    let desk = Desk::new().await;
    let app = desk.github.add_app("ralph-app", &PERMISSIONS, &[REPO]);
    let claims = Claims::new(Arc::new(desk.app_forge(&app)), "first", LEASE);
    let mut claim = won(&claims, 7).await;
    desk.github.expire_installation_tokens();
    claims.renew(&mut claim, None).await.unwrap();
    desk.github.expire_installation_tokens();
    claims.release(claim).await.unwrap();
    assert_eq!(claim_ref(&desk, 7), None);
    assert_eq!(desk.count("POST /app/installations/"), 3);
    let requests = desk.github.requests();
    let pushes = requests.iter().filter(|request| request.path == RECEIVE);
    let by: Vec<&str> = pushes.map(|push| push.identity.as_str()).collect();
    assert_eq!(by, ["ralph-app[bot]"; 3]);
}

/// Trap 4: pushes are limited too, by 403 or 429 and without a header that git shows. They wait, with all other calls.
#[rstest]
#[case::push_403("POST", RECEIVE, 403)]
#[case::push_429("POST", RECEIVE, 429)]
#[case::look_429("GET", "/acme/widget.git/info/refs?service=git-receive-pack", 429)]
#[tokio::test]
async fn a_claim_waits_for_a_limit(#[case] method: &str, #[case] path: &str, #[case] status: u16) {
    let desk = Desk::new().await;
    let claims = now(&desk, "first");
    let limit = Fault::SecondaryLimit {
        status,
        retry_after: None,
    };
    desk.github.fail_next(method, path, limit);
    won(&claims, 7).await;
    assert_eq!(desk.github.faults_left(), 0);
    let requests = desk.github.requests();
    let refused = requests
        .iter()
        .position(|request| request.status == status)
        .unwrap();
    let pause = requests[refused + 1].began - requests[refused].ended;
    assert!(pause >= quick().secondary_pause, "{pause:?}");
}

/// Other processes take the claim over before each attempt: it ends, and says why.
#[tokio::test]
async fn lost_races_end() {
    let desk = Desk::new().await;
    let dir = desk.github.git(REPO, &["rev-parse", "--absolute-git-dir"]);
    let ended = ClaimRecord {
        owner: "other".to_owned(),
        epoch: 1,
        until: Timestamp::now() - LEASE * 2,
        run: None,
        pushed: None,
    };
    let (record, ended) = (
        serde_json::to_string(&ended).unwrap(),
        Timestamp::now().as_second(),
    );
    let hook = format!(
        "#!/bin/sh\nunset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES\n\
         echo x >> races\nexport GIT_AUTHOR_DATE=\"$(({ended} + $(wc -l < races))) +0000\"\n\
         export GIT_AUTHOR_NAME=o GIT_AUTHOR_EMAIL=o GIT_COMMITTER_NAME=o GIT_COMMITTER_EMAIL=o\n\
         git update-ref refs/ralph/claims/7 $(git commit-tree -m '{record}' 'HEAD^{{tree}}')\n"
    );
    std::fs::write(format!("{}/hooks/pre-receive", dir.trim()), hook).unwrap();
    let error = now(&desk, "first").claim(7, None).await.unwrap_err();
    assert!(
        matches!(error, GitHubError::ClaimContested { issue: 7 }),
        "{error:?}"
    );
    assert!(error.hint().unwrap().contains("try again"), "{error}");
}

#[tokio::test]
async fn a_token_that_may_not_push_is_named() {
    let desk = Desk::new().await;
    desk.github
        .add_pat(TOKEN, "ralph-bot", &["contents:read", "issues:write"]);
    let error = now(&desk, "first").claim(7, None).await.unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.contains("`contents: write`"), "{error} {hint}");
}

#[tokio::test]
async fn a_ref_that_is_no_claim_is_left_alone() {
    let desk = Desk::new().await;
    desk.github
        .git(REPO, &["update-ref", "refs/ralph/claims/7", "refs/heads/main"]);
    let error = now(&desk, "first").claim(7, None).await.unwrap_err();
    assert!(crate::desk::chain(&error).contains("`refs/ralph/claims/7` is not a claim of ralph"));
}
